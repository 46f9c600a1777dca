/* SPDX-License-Identifier: MIT
 *
 * kind_weights.c - matrices as heat maps: weights of a head, of all heads, the steps from queries to outputs, masks. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kinds.h"
#include "testing/text/failure.h"

static const char *tensor_of(const plot_task *task) { return task->settings->tensor ? task->settings->tensor : "weights"; }

static attn_status check_size(const stack *s, int64_t matrices, attn_error *error)
{
    int64_t cells;
    if (!__builtin_mul_overflow(s->rows, s->columns, &cells) && !__builtin_mul_overflow(cells, matrices, &cells) &&
        cells <= HEAT_MAX)
        return ATTN_OK;
    return failure(error, ATTN_ERR_UNSUPPORTED,
                   "%.80s: %" PRId64 " matrices of %" PRId64 " x %" PRId64 " are too many cells for a picture (at most %d)",
                   s->source->path, matrices, s->rows, s->columns, HEAT_MAX);
}

/* ---- one head ---- */

static attn_status draw_weights(plot_task *task, const stack *s, const choice *c, attn_error *error)
{
    char head[80];
    double *numbers = NULL;
    attn_status status = check_size(s, 1, error);
    if (status == ATTN_OK) status = stack_read(s, c->layer[0], c->entry, c->head[0], 0, &numbers, error);
    if (status == ATTN_OK) status = check_weights(s, numbers, error);
    if (status == ATTN_OK) {
        double sum;
        task->note = weights_note(row_without_entropy(s, numbers, &sum) < 0);
        const double set = task->settings->high, high = set > 0 ? set : set < 0 ? 1 : plot_largest(numbers, s->rows * s->columns);
        const char **rows = stack_row_names(s, c->entry), **columns = stack_column_names(s, c->entry);
        name_head(s, c->layer[0], c->head[0], head);
        const heat h = {"Where each query attends",
                        "query",
                        "key",
                        "weight",
                        s->rows,
                        s->columns,
                        numbers,
                        HEAT_SEQUENTIAL,
                        0,
                        high,
                        rows,
                        columns,
                        0,
                        0};
        heat_put(task->figure, &h);
        heat_bar_put(task->figure, h.colors, h.low, h.high, "weight");
        snprintf(task->title, sizeof task->title, "Attention weights: %s", head);
        free(rows), free(columns);
    }
    free(numbers);
    return status;
}

attn_status plot_weights(plot_task *task, attn_error *error)
{
    stack s;
    choice c = {0};
    attn_status status = stack_open(&s, &task->sources[0], tensor_of(task), "attn run --weights", 2, error);
    if (status == ATTN_OK) status = choice_make(&c, task, &s, 1, error);
    if (status == ATTN_OK) status = draw_weights(task, &s, &c, error);
    tell_source(task, &task->sources[0]);
    choice_free(&c);
    stack_close(&s);
    return status;
}

/* ---- all heads ---- */

enum { THUMB = 84, THUMB_GAP = 10, NAME_HEIGHT = 18 };

static attn_status draw_heads(plot_task *task, const stack *s, const choice *c, attn_error *error)
{
    const int64_t count = c->layers * c->heads, size = s->rows * s->columns, across = s->labels.has_layers ? c->heads : 12;
    const double most = (double)(s->rows > s->columns ? s->rows : s->columns), cell = THUMB / most;
    const char **rows = stack_row_names(s, c->entry), **columns = stack_column_names(s, c->entry);
    double **numbers = need_memory(count, sizeof *numbers), high = 0, sum, x, y;
    int distributions = 1;
    attn_status status = ATTN_OK;
    for (int64_t n = 0; n < count && status == ATTN_OK; n++) {
        status = stack_read(s, c->layer[n / c->heads], c->entry, c->head[n % c->heads], 0, &numbers[n], error);
        if (status == ATTN_OK) status = check_weights(s, numbers[n], error);
        if (status == ATTN_OK) high = fmax(high, plot_largest(numbers[n], size));
        if (status == ATTN_OK) distributions &= row_without_entropy(s, numbers[n], &sum) < 0;
    }
    task->note = weights_note(distributions);
    if (task->settings->high != 0) high = task->settings->high > 0 ? task->settings->high : 1;
    if (status == ATTN_OK) {
        const int64_t lines = (count + across - 1) / across, wide = count < across ? count : across;
        const double step_x = cell * (double)s->columns + THUMB_GAP, step_y = cell * (double)s->rows + NAME_HEIGHT + THUMB_GAP;
        figure_place(task->figure, step_x * (double)wide, step_y * (double)lines, &x, &y);
        for (int64_t n = 0; n < count; n++) {
            char name[40];
            name_head_shortly(s, c->layer[n / c->heads], c->head[n % c->heads], name);
            const heat h = {name, "query", "key", "weight", s->rows, s->columns, numbers[n], HEAT_SEQUENTIAL,
                            0,    high,    rows,  columns,  cell,    1};
            heat_draw(task->figure, &h, x + step_x * (double)(n % across), y + step_y * (double)(n / across));
        }
        heat_bar_put(task->figure, HEAT_SEQUENTIAL, 0, high, "weight (rows: queries, columns: keys)");
        snprintf(task->title, sizeof task->title, "Attention weights of %" PRId64 " heads%s", count,
                 s->labels.has_layers ? ", each named layer.head" : "");
    }
    for (int64_t n = 0; n < count; n++) free(numbers[n]);
    free(numbers), free(rows), free(columns);
    return status;
}

attn_status plot_heads(plot_task *task, attn_error *error)
{
    stack s;
    choice c = {0};
    attn_status status = stack_open(&s, &task->sources[0], tensor_of(task), "attn run --weights", 2, error);
    if (status == ATTN_OK) status = choice_make(&c, task, &s, 0, error);
    if (status == ATTN_OK) status = check_size(&s, c.layers * c.heads, error);
    if (status == ATTN_OK) status = draw_heads(task, &s, &c, error);
    tell_source(task, &task->sources[0]);
    choice_free(&c);
    stack_close(&s);
    return status;
}

/* ---- queries, scores, weights, outputs ---- */

/* The first file that has the tensor; else the first file, for the message that it is missing. */
static const source *file_with(const plot_task *task, const char *name)
{
    for (int k = 0; k < task->count; k++)
        if (task->sources[k].tensors && attn_archive_find(task->sources[k].tensors, name)) return &task->sources[k];
    return &task->sources[0];
}

static attn_status draw_step(plot_task *task, const char *name, const char *title, const char *command, int by_channel,
                             attn_error *error)
{
    stack s;
    choice c = {0};
    char head[80];
    double *numbers = NULL;
    const int weights = strcmp(name, "weights") == 0;
    attn_status status = stack_open(&s, file_with(task, name), name, command, 2, error);
    if (status == ATTN_OK) status = choice_make(&c, task, &s, 1, error);
    if (status == ATTN_OK) status = check_size(&s, 1, error);
    if (status == ATTN_OK) status = stack_read(&s, c.layer[0], c.entry, c.head[0], strcmp(name, "scores") == 0, &numbers, error);
    if (status == ATTN_OK) {
        double sum;
        const int distributions = weights && row_without_entropy(&s, numbers, &sum) < 0;
        if (weights) task->note = weights_note(distributions);
        if (weights && !distributions) title = "A: weights, from S";
        const char **rows = stack_row_names(&s, c.entry), **columns = by_channel ? NULL : stack_column_names(&s, c.entry);
        const heat h = {.title = title,
                        .row_axis = "query",
                        .column_axis = by_channel ? "channel" : "key",
                        .value = name,
                        .rows = s.rows,
                        .columns = s.columns,
                        .values = numbers,
                        .colors = weights ? HEAT_SEQUENTIAL : HEAT_DIVERGING,
                        .high = weights ? 1 : plot_largest(numbers, s.rows * s.columns),
                        .row_names = rows,
                        .column_names = columns};
        double width, height, x, y;
        heat_size(&h, &width, &height);
        figure_place(task->figure, fmax(width, HEAT_BAR_WIDTH), height + 20 + HEAT_BAR_HEIGHT, &x, &y);
        heat_draw(task->figure, &h, x, y);
        heat_bar(task->figure, h.colors, h.low, h.high, name, x, y + height + 20);
        name_head(&s, c.layer[0], c.head[0], head);
        snprintf(task->title, sizeof task->title, "From queries to outputs: %s", head);
        free(rows), free(columns);
    }
    free(numbers);
    choice_free(&c);
    stack_close(&s);
    return status;
}

attn_status plot_steps(plot_task *task, attn_error *error)
{
    const source *of_q = file_with(task, "q");
    if (!of_q->tensors || !attn_archive_find(of_q->tensors, "q"))
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.100s: has no queries, 'q'; give the file that attn run read, too: attn plot steps OUT IN -o steps.svg",
                       of_q->path);
    attn_status status = draw_step(task, "q", "Q: queries", "attn make", 1, error);
    if (status == ATTN_OK) status = draw_step(task, "scores", "S: scores", "attn run --scores=biased", 0, error);
    if (status == ATTN_OK)
        status = draw_step(task, "weights", "A: weights, the softmax of each row of S", "attn run --weights", 0, error);
    if (status == ATTN_OK) status = draw_step(task, "o", "O: outputs, the values that A averages", "attn run", 1, error);
    tell_source(task, file_with(task, "weights"));
    return status;
}

/* ---- masks ---- */

attn_status plot_mask(plot_task *task, attn_error *error)
{
    stack s;
    choice c = {0};
    double *numbers = NULL;
    attn_status status =
        stack_open(&s, &task->sources[0], task->settings->tensor ? task->settings->tensor : "mask", "attn mask -o", 2, error);
    if (status == ATTN_OK) status = choice_make(&c, task, &s, 1, error);
    if (status == ATTN_OK) status = check_size(&s, 1, error);
    if (status == ATTN_OK) status = stack_read(&s, c.layer[0], c.entry, c.head[0], 0, &numbers, error);
    if (status == ATTN_OK) {
        const char *words = attn_archive_get_metadata(task->sources[0].tensors, "attn_mask");
        const char **rows = stack_row_names(&s, c.entry), **columns = stack_column_names(&s, c.entry);
        const heat h = {
            "Which query sees which key", "query", "key", "", s.rows, s.columns, numbers, HEAT_MASK, 0, 1, rows, columns, 0, 0};
        int64_t seen = 0;
        for (int64_t n = 0; n < s.rows * s.columns; n++) seen += numbers[n] != 0;
        heat_put(task->figure, &h);
        heat_bar_put(task->figure, h.colors, 0, 1, "pairs");
        snprintf(task->title, sizeof task->title, "Mask%s%.150s", words ? ": " : "", words ? words : "");
        snprintf(task->about, sizeof task->about, "%.150s: %" PRId64 " of %" PRId64 " pairs are visible, %.2f %% are masked",
                 task->sources[0].path, seen, s.rows * s.columns, 100 * (1 - (double)seen / (double)(s.rows * s.columns)));
        free(rows), free(columns);
    }
    free(numbers);
    choice_free(&c);
    stack_close(&s);
    return status;
}
