/* SPDX-License-Identifier: MIT
 *
 * kinds.c - helpers shared by the kinds of pictures: choosing heads, naming them, naming the source of the numbers. */
#include "kinds.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "testing/text/failure.h"

const char *weights_note(int distributions)
{
#define CAVEAT                                                                                                                     \
    "A heat map is a diagnostic, not an explanation: it shows where a head looks, not what the model does with what it finds "     \
    "there."
    return distributions ? "Each row of weights sums to 1. " CAVEAT : CAVEAT;
}

double plot_largest(const double *numbers, int64_t count)
{
    double most = 0;
    for (int64_t n = 0; n < count; n++)
        if (isfinite(numbers[n])) most = fmax(most, fabs(numbers[n]));
    return most > 0 ? most : 1;
}

attn_status choice_make(choice *c, const plot_task *task, const stack *s, int one, attn_error *error)
{
    const plot_settings *settings = task->settings;
    const char *first = one ? "0" : NULL;
    char layer[24];
    snprintf(layer, sizeof layer, "%" PRId64, s->labels.layer_number[0]);
    *c = (choice){.entry = settings->entry < 0 ? 0 : settings->entry};
    attn_status status = labels_choose("layer",
                                       settings->layers ? settings->layers
                                       : one            ? layer
                                                        : NULL,
                                       s->labels.layer_number, s->labels.layers, &c->layer, &c->layers, error);
    if (status == ATTN_OK)
        status = labels_choose("head", settings->heads ? settings->heads : first, NULL, s->heads, &c->head, &c->heads, error);
    if (status == ATTN_OK && c->entry >= s->labels.entries)
        status = labels_unknown("entry", c->entry, NULL, s->labels.entries, error);
    if (status == ATTN_OK && one && c->layers * c->heads > 1)
        status = failure(error, ATTN_ERR_ARGUMENT, "--layer and --head name %" PRId64 " matrices; this picture shows one",
                         c->layers * c->heads);
    return status;
}

void choice_free(choice *c) { free(c->layer), free(c->head); }

attn_status choose_query(const plot_task *task, const stack *s, int64_t otherwise, int64_t *query, attn_error *error)
{
    *query = task->settings->query < 0 ? otherwise : task->settings->query;
    if (*query < s->rows) return ATTN_OK;
    return labels_unknown("query", *query, NULL, s->rows, error);
}

void name_head(const stack *s, int64_t layer, int64_t head, char text[80])
{
    if (s->labels.has_layers) snprintf(text, 80, "layer %" PRId64 ", head %" PRId64, s->labels.layer_number[layer], head);
    else if (s->heads > 1) snprintf(text, 80, "head %" PRId64, head);
    else snprintf(text, 80, "one head");
}

void name_head_shortly(const stack *s, int64_t layer, int64_t head, char text[40])
{
    if (s->labels.has_layers) snprintf(text, 40, "%" PRId64 ".%" PRId64, s->labels.layer_number[layer], head);
    else snprintf(text, 40, "%" PRId64, head);
}

void tell_source(plot_task *task, const source *s)
{
    const char *problem = s->tensors ? attn_archive_get_metadata(s->tensors, "attn_problem") : NULL;
    const char *kernel = s->tensors ? attn_archive_get_metadata(s->tensors, "attn_kernel") : NULL;
    snprintf(task->about, sizeof task->about, "%.150s%s%.200s%s%.80s", s->path, problem ? ": " : "", problem ? problem : "",
             kernel ? ", " : "", kernel ? kernel : "");
}

attn_status check_weights(const stack *s, const double *weights, attn_error *error)
{
    for (int64_t n = 0; n < s->rows * s->columns; n++)
        if (weights[n] < 0)
            return failure(error, ATTN_ERR_ARGUMENT, "%.100s: tensor '%.40s' does not hold weights: %g is below 0", s->source->path,
                           s->tensor->name, weights[n]);
    return ATTN_OK;
}

int64_t row_without_entropy(const stack *s, const double *weights, double *sum)
{
    const double rounding = 0.002 + 3e-8 * (double)s->columns; /* of numbers in bf16, and of small ones in f16 */
    for (int64_t i = 0; i < s->rows; i++) {
        *sum = 0;
        for (int64_t j = 0; j < s->columns; j++) *sum += weights[i * s->columns + j];
        if (*sum != 0 && !(fabs(*sum - 1) <= rounding)) return i;
    }
    return -1;
}
