/* SPDX-License-Identifier: MIT
 *
 * shown.c - reads one file for the page, and its weights if there are no q and k that stand in for them. */
#include "shown.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/progress.h"
#include "cli/compute/weights.h"
#include "computed.h"
#include "testing/text/failure.h"

static attn_status check_size(const shown *g, attn_error *error)
{
    const int64_t sizes[] = {g->entries, g->layers, g->heads, g->rows, g->input.problem.shape.len_kv};
    int64_t count = 1;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        if (sizes[k] == 0) return failure(error, ATTN_ERR_SHAPE, "%.100s: nothing to show: a size is 0", g->input.path);
        if (g->by_rows || (!__builtin_mul_overflow(count, sizes[k], &count) && count <= VIEW_MAX_WEIGHTS)) continue;
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "%.60s: %" PRId64 " entries x %" PRId64 " layers x %" PRId64 " heads x %" PRId64 " x %" PRId64
                       " weights are too many for a page (at most %" PRId64 "); --layer, --head, --entry, --queries choose fewer",
                       g->input.path, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], VIEW_MAX_WEIGHTS);
    }
    return ATTN_OK;
}

attn_status shown_load(shown *s, const char *path, const shown_choice *choice, const input_settings *in, attn_error *error)
{
    attn_status status = input_load_weights(&s->input, path, in, error);
    if (status == ATTN_OK) status = labels_read(&s->labels, &s->input, in->tokens, error);
    if (status == ATTN_OK) status = shown_choose(s, choice, error);
    if (status == ATTN_OK) s->by_rows = !s->input.weights && computed_can(s);
    return status == ATTN_OK ? check_size(s, error) : status;
}

/* ---- weights ---- */

static attn_status compute_weights(shown *g, float *out, const common_settings *common, attn_error *error)
{
    const attn_shape *s = &g->input.problem.shape;
    const int64_t head_size = g->rows * s->len_kv;
    progress bar;
    weight_reader reader;
    float *all_heads = need_memory(s->heads_q * head_size, sizeof *all_heads);
    attn_status status = weights_begin(&reader, &g->input, g->rows, common, error);
    progress_begin(&bar, "weights", common->quiet);
    for (int64_t e = 0; e < g->entries; e++) {
        for (int64_t y = 0; y < g->layers && status == ATTN_OK; y++) {
            status = weights_read(&reader, shown_batch(g, y, e), g->query[0], all_heads, error);
            for (int64_t h = 0; h < g->heads; h++, out += head_size)
                memcpy(out, all_heads + g->head[h] * head_size, (size_t)head_size * sizeof *out);
            progress_show(&bar, e * g->layers + y + 1, g->entries * g->layers);
        }
    }
    progress_end(&bar);
    weights_end(&reader);
    free(all_heads);
    return status;
}

/* The weights are in the page. */
static attn_status take_all(shown *g, const common_settings *common, attn_error *error)
{
    const int64_t keys = g->input.problem.shape.len_kv, each = g->layers * g->heads * g->rows * keys;
    float *weights = shown_memory(g, g->entries * each, sizeof *weights);
    attn_status status = compute_weights(g, weights, common, error);
    for (int64_t k = 0; k < g->entries * each && status == ATTN_OK; k += keys) view_doubts_add(&g->doubts, weights + k, keys);
    for (int64_t e = 0; e < g->entries && status == ATTN_OK; e++) {
        g->sequence[e].weights = weights + e * each;
        g->sequence[e].summary = view_summarise(g->sequence + e, g->layers, g->heads);
    }
    return status;
}

/* ---- sequences ---- */

/* Labels of all queries or keys, or NULL if none has one; the rest get their numbers. */
static const char *const *names_of(shown *g, int64_t entry, int64_t first, int64_t count, int keys, const char **names,
                                   char *numbers)
{
    int any = 0;
    for (int64_t k = 0; k < count; k++) {
        const char *label =
            keys ? labels_key(&g->labels, &g->input, entry, first + k) : labels_query(&g->labels, &g->input, entry, first + k);
        any |= label != NULL;
        names[k] = label_or_number(label, first + k, numbers + k * LABEL_NUMBER);
    }
    return any ? names : NULL;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void add_sequences(shown *g, int file)
{
    const attn_shape *s = &g->input.problem.shape;
    const int64_t *lengths_q = g->input.tensors.lengths_q.data, *lengths_kv = g->input.tensors.lengths_kv.data,
                  each = g->rows + s->len_kv;
    g->sequence = shown_memory(g, g->entries, sizeof *g->sequence);
    const char **all_names = shown_memory(g, g->entries * each, sizeof *all_names);
    char *numbers = shown_memory(g, g->entries * each, LABEL_NUMBER);
    for (int64_t e = 0; e < g->entries; e++) {
        int64_t entry = g->entry[e], b = shown_batch(g, 0, e), first = g->query[0];
        const char **names = all_names + e * each;
        char *of_entry = numbers + e * each * LABEL_NUMBER;
        int64_t len_q = lengths_q ? lengths_q[b] - first : g->rows;
        g->sequence[e] = (view_sequence){
            .file = file,
            .rows = g->rows,
            .columns = s->len_kv,
            .len_q = len_q < 0 ? 0 : least(len_q, g->rows),
            .len_k = lengths_kv ? lengths_kv[b] : s->len_kv,
            .first_query = first,
            .queries = names_of(g, entry, first, g->rows, 0, names, of_entry),
            .keys = names_of(g, entry, 0, s->len_kv, 1, names + g->rows, of_entry + g->rows * LABEL_NUMBER),
        };
    }
}

attn_status shown_compute(shown *s, int file, const input_settings *in, attn_error *error)
{
    s->doubts.normalised = s->input.weights != NULL;
    add_sequences(s, file);
    const attn_status status = s->by_rows ? computed_take(s, in, error) : take_all(s, &in->common, error);
    return status == ATTN_OK ? status : failure_about(error, s->input.path);
}

void shown_free(shown *s)
{
    for (int64_t e = 0; e < s->entries && s->sequence; e++) {
        view_summary *summary = (view_summary *)s->sequence[e].summary;
        for (int64_t k = 0; k < s->layers * s->heads && summary; k++) summary_free(summary + k);
        free(summary);
    }
    for (int64_t k = 0; k < s->owned_count; k++) free(s->owned[k]);
    void *const owned[] = {s->owned, s->layer, s->head, s->entry, s->query, s->layer_number};
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++) free(owned[k]);
    labels_free(&s->labels);
    input_free(&s->input);
}
