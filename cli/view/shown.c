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
#include "role_pass.h"
#include "testing/text/failure.h"

enum { BLOCK_WEIGHTS = 1 << 22 }; /* that are computed at once */

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

/* ---- weights ---- */

/* What the page says of the rows of a layer of an entry, and a copy of those that were chosen. */
static void take_layer(shown *g, int64_t e, int64_t y, const float *all_heads, const uint8_t *visible, const role_pass *pass,
                       float *out)
{
    const view_sequence *sequence = g->sequence + e;
    const int64_t keys = g->input.problem.shape.len_kv, head_size = g->rows * keys;
    role_pass_clear(pass);
    for (int64_t h = 0; h < g->heads; h++, out += head_size) {
        const int64_t at = g->head[h] * head_size;
        view_summary *summary = (view_summary *)sequence->summary + y * g->heads + h;
        memcpy(out, all_heads + at, (size_t)head_size * sizeof *out);
        summary_begin(summary, sequence->len_q, sequence->len_k);
        for (int64_t i = 0; i < g->rows; i++) {
            view_doubts_add(&g->doubts, out + i * keys, keys);
            if (i >= sequence->len_q) continue;
            summary_add(summary, i, out + i * keys, visible + at + i * keys);
            role_pass_add(pass, h, i, out + i * keys, visible + at + i * keys);
        }
        summary_end(summary);
    }
    role_pass_finish(pass, y);
}

/* The weights are in the page. */
static attn_status take_all(shown *g, const common_settings *common, attn_error *error)
{
    const attn_shape *s = &g->input.problem.shape;
    const int64_t head_size = g->rows * s->len_kv, layer_size = g->heads * head_size;
    progress bar;
    weight_reader reader;
    float *all_heads = need_memory(s->heads_q * head_size, sizeof *all_heads);
    uint8_t *visible = need_memory(s->heads_q * head_size, 1);
    float *out = shown_memory(g, g->entries * g->layers * layer_size, sizeof *out);
    attn_status status = weights_begin_visible(&reader, &g->input, g->rows, common, error);
    progress_begin(&bar, "weights", common->quiet);
    for (int64_t e = 0; e < g->entries; e++) {
        role_pass pass;
        g->sequence[e].weights = out;
        g->sequence[e].summary = need_memory(g->layers * g->heads, sizeof *g->sequence[e].summary);
        role_pass_begin(&pass, g, e);
        for (int64_t y = 0; y < g->layers && status == ATTN_OK; y++, out += layer_size) {
            const int64_t b = shown_batch(g, y, e);
            status = weights_read(&reader, b, g->query[0], all_heads, error);
            if (status != ATTN_OK) break;
            weights_visible(&reader, b, g->query[0], visible);
            take_layer(g, e, y, all_heads, visible, &pass, out);
            progress_show(&bar, e * g->layers + y + 1, g->entries * g->layers);
        }
        role_pass_end(&pass);
    }
    progress_end(&bar);
    weights_end(&reader);
    free(all_heads);
    free(visible);
    return status == ATTN_OK ? status : failure_about(error, g->input.path);
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

attn_status shown_load(shown *s, const char *path, const shown_choice *choice, int file, const input_settings *in,
                       attn_error *error)
{
    attn_status status = input_load_weights(&s->input, path, in, error);
    if (status == ATTN_OK) status = labels_read(&s->labels, &s->input, in->tokens, error);
    if (status == ATTN_OK) status = shown_choose(s, choice, error);
    if (status == ATTN_OK) s->by_rows = !s->input.weights && computed_can(s);
    if (status == ATTN_OK) status = check_size(s, error);
    if (status == ATTN_OK) add_sequences(s, file);
    return status;
}

attn_status shown_compute(shown *s, const input_settings *in, attn_error *error)
{
    s->doubts.normalised = s->input.weights != NULL;
    return s->by_rows ? computed_take(s, in, error) : take_all(s, &in->common, error);
}

attn_status shown_head(shown *s, const input_settings *in, float **weights, attn_error *error)
{
    const attn_shape *shape = &s->input.problem.shape;
    const int64_t each = shape->heads_q * shape->len_kv, most = BLOCK_WEIGHTS / each > 1 ? BLOCK_WEIGHTS / each : 1;
    const int64_t rows = least(most, s->rows);
    weight_reader reader;
    if (s->rows > VIEW_MAX_WEIGHTS / shape->len_kv)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "%.100s: %" PRId64 " x %" PRId64 " weights are too many for a picture (at most %" PRId64
                       "); --queries chooses fewer",
                       s->input.path, s->rows, shape->len_kv, VIEW_MAX_WEIGHTS);
    float *block = need_memory(each * rows, sizeof *block);
    *weights = need_memory(s->rows * shape->len_kv, sizeof **weights);
    attn_status status = weights_begin(&reader, &s->input, rows, &in->common, error);
    for (int64_t done = 0; done < s->rows && status == ATTN_OK; done += rows) {
        const int64_t first = least(done, s->rows - rows);
        status = weights_read(&reader, shown_batch(s, 0, 0), s->query[0] + first, block, error);
        memcpy(*weights + first * shape->len_kv, block + s->head[0] * rows * shape->len_kv,
               (size_t)(rows * shape->len_kv) * sizeof *block);
    }
    weights_end(&reader);
    free(block);
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
