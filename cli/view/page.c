/* SPDX-License-Identifier: MIT
 *
 * page.c - the page is the embedded source with one gap; this file checks the data and fills the gap with
 *
 *      <script type="application/json" id="attn-about">   sizes, tokens, texts, rules
 *      the chunks of numbers (chunks.h)
 */
#include "page.h"

#include "chunks.h"
#include "encode.h"
#include "library.h"
#include "source.h"
#include "testing/text/failure.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static attn_status check_positive(const char *name, int64_t value, attn_error *error)
{
    if (value >= 1) return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "%s (%" PRId64 ") is below 1: there is nothing to show", name, value);
}

static attn_status check_length(const char *what, int64_t length, int64_t s, int64_t most, attn_error *error)
{
    if (length >= 0 && length <= most) return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE, "length %" PRId64 " of sequence %" PRId64 " is not between 0 and %" PRId64 " %s", length,
                   s, most, what);
}

/* The numbers of the page for each head: weights, or in place of these those of a query and of a key head.  Divides instead of
 * multiplying, so that no size overflows. */
static attn_status count_numbers(const view_data *data, int64_t all_heads, int64_t *count, attn_error *error)
{
    int64_t per_head = 0;
    for (int64_t s = 0; s < data->sequences; s++) {
        const view_sequence *sequence = data->sequence + s;
        attn_status status = check_length("queries", sequence->len_q, s, sequence->rows, error);
        if (status == ATTN_OK) status = check_length("keys", sequence->len_k, s, sequence->columns, error);
        if (status != ATTN_OK) return status;
        const int64_t capacity = VIEW_MAX_WEIGHTS / all_heads - per_head;
        const int64_t each = sequence->rule ? sequence->rule->dim : sequence->len_k;
        const int64_t rows = sequence->rule ? sequence->len_q / 2 + sequence->len_k / 2 : sequence->len_q;
        if (each > 0 && rows > capacity / each)
            return failure(error, ATTN_ERR_UNSUPPORTED,
                           "%" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64
                           " weights (sequences x layers x heads x "
                           "queries x keys) are too many for a page (at most %" PRId64 "): choose fewer of them",
                           data->sequences, data->layers, data->heads, sequence->rows, sequence->columns, VIEW_MAX_WEIGHTS);
        per_head += rows * each;
    }
    *count = per_head * all_heads;
    return ATTN_OK;
}

static attn_status check(const view_data *data, int64_t *count, attn_error *error)
{
    attn_status status = check_positive("sequences", data->sequences, error);
    if (status == ATTN_OK) status = check_positive("layers", data->layers, error);
    if (status == ATTN_OK) status = check_positive("heads", data->heads, error);
    for (int64_t s = 0; s < data->sequences && status == ATTN_OK; s++) {
        status = check_positive("queries", data->sequence[s].rows, error);
        if (status == ATTN_OK) status = check_positive("keys", data->sequence[s].columns, error);
    }
    if (status != ATTN_OK) return status;
    if (data->layers > VIEW_MAX_HEADS / data->heads)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "%" PRId64 " layers x %" PRId64 " heads are too many for a page (at most %" PRId64
                       " heads in all): choose fewer layers or heads",
                       data->layers, data->heads, VIEW_MAX_HEADS);
    return count_numbers(data, data->layers * data->heads, count, error);
}

view_summary *view_summarise(const view_sequence *sequence, int64_t layers, int64_t heads)
{
    view_summary *all = need_memory(layers * heads, sizeof *all);
    const float *weights = sequence->weights;
    for (int64_t k = 0; k < layers * heads; k++, weights += sequence->rows * sequence->columns) {
        summary_begin(all + k, sequence->len_q, sequence->len_k);
        for (int64_t i = 0; i < sequence->len_q; i++) summary_add(all + k, i, weights + i * sequence->columns, NULL);
        summary_end(all + k);
    }
    return all;
}

static void write_labels(text_buffer *out, const char *const *labels, int64_t count)
{
    if (!labels) {
        text_string(out, "null");
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        text_letter(out, i ? ',' : '[');
        view_encode_text(out, labels[i] ? labels[i] : "");
    }
    text_string(out, count ? "]" : "[]");
}

static void write_numbers(text_buffer *out, const int64_t *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) text_print(out, "%c%" PRId64, i ? ',' : '[', numbers ? numbers[i] : i);
    text_letter(out, ']');
}

static void write_reals(text_buffer *out, const double *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) text_print(out, "%c%.17g", i ? ',' : '[', numbers[i]);
    text_letter(out, ']');
}

static void write_rotation(text_buffer *out, const view_rotation *rotation)
{
    if (rotation->kind == VIEW_ROTATION_OF_BASE)
        text_print(out, ",\"rope\":{\"base\":%.17g,\"channels\":%" PRId64 ",\"halves\":%s}", rotation->base, rotation->channels,
                   rotation->halves ? "true" : "false");
    else text_print(out, ",\"rope\":%s", rotation->kind == VIEW_ROTATION_NONE ? "null" : "false");
}

static void write_rule(text_buffer *out, const view_data *data, const view_sequence *sequence)
{
    const view_rule *rule = sequence->rule;
    const attn_mask *mask = &rule->mask;
    text_print(out, "{\"type\":\"%s\",\"dim\":%" PRId64 ",\"values\":%s,\"groups\":", attn_dtype_name(rule->dtype), rule->dim,
               sequence->data.norms ? "true" : "false");
    write_numbers(out, rule->group, data->heads);
    text_string(out, ",\"scale\":");
    write_reals(out, rule->scale, data->heads);
    if (rule->slopes) {
        text_string(out, ",\"slopes\":");
        write_reals(out, rule->slopes, data->layers * data->heads);
    }
    if (rule->sinks) {
        text_string(out, ",\"sinks\":");
        write_reals(out, rule->sinks, data->heads);
    }
    write_rotation(out, &rule->rotation);
    const struct {
        const char *name;
        int64_t value;
    } rows[] = {{"position", rule->position},
                {"causal", mask->causal},
                {"chunk", mask->chunk},
                {"dilation", mask->dilation},
                {"globalQ", mask->global_q},
                {"globalK", mask->global_kv},
                {"least", mask->least_distance},
                {"left", mask->window ? mask->window_left : -1},
                {"right", mask->window ? mask->window_right : -1}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) text_print(out, ",\"%s\":%" PRId64, rows[k].name, rows[k].value);
    text_print(out, ",\"softcap\":%.17g}", rule->softcap);
}

/* A number, or null, since JSON has no NaN. */
static void write_number(text_buffer *out, double x)
{
    if (isfinite(x)) text_print(out, "%.6g", x);
    else text_string(out, "null");
}

/* Of each head, of each role: score, baseline, rows, 1 if the head has it. */
static void write_roles(text_buffer *out, const head_roles *roles, int64_t heads)
{
    for (int64_t h = 0; h < heads; h++) {
        text_string(out, h ? ",[" : "[[");
        for (int r = 0; r < HEAD_ROLES; r++) {
            text_string(out, r ? ",[" : "[");
            write_number(out, roles[h].number[r].score);
            text_letter(out, ',');
            write_number(out, roles[h].number[r].baseline);
            text_print(out, ",%" PRId64 ",%d]", roles[h].number[r].rows, head_role_badge(roles + h, (head_role)r));
        }
        text_letter(out, ']');
    }
    text_letter(out, ']');
}

static void write_role_table(text_buffer *out)
{
    for (int r = 0; r < HEAD_ROLES; r++)
        text_print(out, "%s{\"name\":\"%s\",\"heading\":\"%s\",\"line\":\"%s\",\"badge\":%g}", r ? "," : "[",
                   head_role_table[r].name, head_role_table[r].heading, head_role_table[r].line, head_role_table[r].badge);
    text_letter(out, ']');
}

static void write_shape(text_buffer *out, const char *name, const view_level *level)
{
    if (level->rows) text_print(out, ",\"%s\":[%" PRId64 ",%" PRId64 "]", name, level->rows, level->columns);
}

static void write_sequence(text_buffer *out, const view_data *data, const view_sequence *sequence)
{
    text_string(out, "{\"name\":");
    view_encode_text(out, sequence->name);
    text_print(out,
               ",\"file\":%d,\"lenQ\":%" PRId64 ",\"lenK\":%" PRId64 ",\"firstQuery\":%" PRId64 ",\"queries\":", sequence->file,
               sequence->len_q, sequence->len_k, sequence->first_query);
    write_labels(out, sequence->queries, sequence->len_q);
    text_string(out, ",\"keys\":");
    write_labels(out, sequence->keys, sequence->len_k);
    write_shape(out, "small", &sequence->summary->small);
    write_shape(out, "large", &sequence->summary->large);
    if (sequence->roles) {
        text_string(out, ",\"roles\":");
        write_roles(out, sequence->roles, data->layers * data->heads);
    }
    if (sequence->content_roles) {
        text_string(out, ",\"contentRoles\":");
        write_roles(out, sequence->content_roles, data->layers * data->heads);
    }
    if (sequence->rule) {
        text_string(out, ",\"rule\":");
        write_rule(out, data, sequence);
    }
    text_letter(out, '}');
}

static void write_about(text_buffer *out, const view_data *data, int exact)
{
    text_print(out, "<script type=\"application/json\" id=\"attn-about\">{\"encoding\":\"%s\",\"title\":", exact ? "f32" : "u16");
    view_encode_text(out, data->title);
    text_string(out, ",\"sources\":[");
    for (int k = 0; k < 2 && data->sources[k]; k++) {
        if (k) text_letter(out, ',');
        view_encode_text(out, data->sources[k]);
    }
    text_letter(out, ']');
    text_string(out, ",\"attribution\":");
    view_encode_text(out, data->attribution);
    text_string(out, ",\"layers\":");
    write_numbers(out, data->layer_numbers, data->layers);
    text_string(out, ",\"heads\":");
    write_numbers(out, data->head_numbers, data->heads);
    text_string(out, ",\"facts\":[");
    for (int64_t i = 0; i < data->facts_count; i++) {
        text_string(out, i ? ",[" : "[");
        view_encode_text(out, data->facts[i].name);
        text_letter(out, ',');
        view_encode_text(out, data->facts[i].value);
        text_letter(out, ']');
    }
    text_string(out, "],\"roles\":");
    write_role_table(out);
    text_string(out, ",\"sequences\":[");
    for (int64_t s = 0; s < data->sequences; s++) {
        if (s) text_letter(out, ',');
        write_sequence(out, data, data->sequence + s);
    }
    text_string(out, "]}</script>\n");
}

attn_status view_write(text_buffer *out, const view_data *data, attn_error *error)
{
    int64_t count = 0;
    if (!out || !data || !data->sequence) return failure(error, ATTN_ERR_ARGUMENT, "out, data or sequence is NULL");
    attn_status status = check(data, &count, error);
    if (status != ATTN_OK) return status;

    int exact = count <= VIEW_EXACT_WEIGHTS;
    text_add(out, view_source_start, view_source_start_size);
    if (data->library) text_string(out, VIEW_LIBRARY_POLICY);
    text_add(out, view_source_before, view_source_before_size);
    write_about(out, data, exact);
    for (int64_t s = 0; s < data->sequences; s++) view_write_chunks(out, data, s, exact);
    if (data->library) view_write_library(out, data->library);
    text_add(out, view_source_after, view_source_after_size);
    attn_status whole = text_status(out, "the page", error);
    if (whole != ATTN_OK) return whole;
    if (error) *error = (attn_error){.status = ATTN_OK};
    return ATTN_OK;
}
