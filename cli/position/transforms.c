/* SPDX-License-Identifier: MIT
 * transforms.c - positions put into the tensors of a file, and their gradients. */
#include <inttypes.h>
#include <stdlib.h>

#include "cli/input/input.h"
#include "cli/input/small_tensor.h"
#include "position.h"
#include "testing/text/failure.h"

static attn_input read_of(const attn_archive_tensor *t) { return (attn_input){.data = t->data, .dtype = t->dtype}; }

/* Adds an output of this type and shape. */
static attn_status add(const position_work *w, const char *name, attn_dtype dtype, int rank, const int64_t *shape,
                       attn_output *slot, attn_error *error)
{
    *slot = (attn_output){.dtype = dtype};
    return attn_archive_allocate(w->out, name, dtype, rank, shape, &slot->data, error);
}

/* A tensor [.., head, token, channel] of at least [token, channel], as four sizes. */
static attn_status find_rows(const position_work *w, const char *name, const attn_archive_tensor **t, int64_t shape[4],
                             attn_error *error)
{
    char text[SHAPE_TEXT];
    attn_status status = small_tensor_find(w->file, name, t, error);
    if (status != ATTN_OK) return status;
    const int rank = (*t)->rank;
    if (rank < 2)
        return failure(error, ATTN_ERR_SHAPE,
                       "tensor '%s' is %s; it must be [token, channel], [head, token, channel] or [batch, "
                       "head, token, channel]",
                       name, shape_text(text, rank, (*t)->shape));
    shape[0] = 1, shape[1] = rank > 2 ? (*t)->shape[rank - 3] : 1;
    shape[2] = (*t)->shape[rank - 2], shape[3] = (*t)->shape[rank - 1];
    for (int k = 0; k < rank - 3; k++) shape[0] *= (*t)->shape[k];
    return ATTN_OK;
}

/* ---- rotate ---- */

attn_status position_rotate(position_work *w, attn_error *error)
{
    const position_settings *s = w->settings;
    const attn_archive_tensor *t;
    attn_rope rope = {.struct_size = sizeof rope, .pairs = s->pairs, .dim_rotary = s->channels, .inverse = s->backward};
    int64_t shape[4] = {0};
    attn_input positions;
    attn_output y;
    attn_status status = find_rows(w, s->backward ? "dy" : "x", &t, shape, error);
    if (status != ATTN_OK) return status;
    const int64_t channels = s->channels ? s->channels : shape[3];
    double *frequencies = need_memory(channels / 2 + 1, sizeof *frequencies);
    status = position_frequencies_of(w, channels, frequencies, &rope.magnitude, error);
    rope.frequencies = frequencies;
    if (status == ATTN_OK) status = position_list(w, shape[0], shape[2], &positions, error);
    if (status == ATTN_OK) status = add(w, s->backward ? "dx" : "y", t->dtype, t->rank, t->shape, &y, error);
    const attn_input x = read_of(t);
    if (status == ATTN_OK) status = attn_rope_apply(&rope, shape, &x, &positions, &y, error);
    free(frequencies);
    return status;
}

/* ---- learned tables ---- */

/* dtable has the rows of the table. */
static attn_status add_backward(position_work *w, const attn_archive_tensor *table, attn_error *error)
{
    const attn_archive_tensor *dy;
    int64_t shape[4] = {0};
    attn_input positions;
    attn_output dtable;
    attn_status status = find_rows(w, "dy", &dy, shape, error);
    if (status == ATTN_OK && shape[3] != table->shape[1])
        status =
            failure(error, ATTN_ERR_SHAPE, "tensor 'dy' has %" PRId64 " channels, and 'table' %" PRId64, shape[3], table->shape[1]);
    if (status == ATTN_OK) status = position_list(w, shape[0], shape[2], &positions, error);
    if (status == ATTN_OK) status = add(w, "dtable", table->dtype, 2, table->shape, &dtable, error);
    const attn_input grad_y = status == ATTN_OK ? read_of(dy) : (attn_input){0};
    return status == ATTN_OK ? attn_position_add_backward(table->shape[0], shape, &grad_y, &positions, &dtable, error) : status;
}

static attn_status find_table(const position_work *w, const attn_archive_tensor **table, attn_error *error)
{
    const int64_t any[2] = {-1, -1};
    return small_tensor_find_shape(w->file, "table", 2, any, "[position, channel]", table, error);
}

attn_status position_add(position_work *w, attn_error *error)
{
    const attn_archive_tensor *t, *table;
    int64_t shape[4] = {0};
    attn_input positions;
    attn_output y;
    attn_status status = find_table(w, &table, error);
    if (status == ATTN_OK && w->settings->backward) return add_backward(w, table, error);
    if (status == ATTN_OK) status = find_rows(w, "x", &t, shape, error);
    if (status == ATTN_OK && shape[3] != table->shape[1])
        status =
            failure(error, ATTN_ERR_SHAPE, "tensor 'x' has %" PRId64 " channels, and 'table' %" PRId64, shape[3], table->shape[1]);
    if (status == ATTN_OK) status = position_list(w, shape[0], shape[2], &positions, error);
    if (status == ATTN_OK) status = add(w, "y", t->dtype, t->rank, t->shape, &y, error);
    if (status != ATTN_OK) return status;
    const attn_input x = read_of(t), rows = read_of(table);
    return attn_position_add(table->shape[0], shape, &x, &rows, &positions, &y, error);
}

attn_status position_resize(position_work *w, attn_error *error)
{
    const attn_archive_tensor *table, *dy;
    attn_output made;
    attn_status status = find_table(w, &table, error);
    if (status != ATTN_OK) return status;
    const int64_t rows = table->shape[0], channels = table->shape[1], resized[2] = {w->settings->tokens, channels};
    if (!w->settings->backward) {
        const attn_input x = read_of(table);
        status = add(w, "y", table->dtype, 2, resized, &made, error);
        return status == ATTN_OK ? attn_position_resize(channels, rows, resized[0], &x, &made, error) : status;
    }
    status = small_tensor_find_shape(w->file, "dy", 2, resized, "[position, channel]", &dy, error);
    if (status == ATTN_OK) status = add(w, "dtable", table->dtype, 2, table->shape, &made, error);
    const attn_input grad_y = status == ATTN_OK ? read_of(dy) : (attn_input){0};
    return status == ATTN_OK ? attn_position_resize_backward(channels, rows, resized[0], &grad_y, &made, error) : status;
}

/* ---- biases ---- */

attn_status position_bias(position_work *w, attn_error *error)
{
    const int64_t any[2] = {-1, -1};
    const attn_archive_tensor *table, *dbias;
    attn_distance_bias rule = {0};
    attn_output made;
    attn_status status = small_tensor_find_shape(w->file, "bias_table", 2, any, "[head, bucket]", &table, error);
    if (status == ATTN_OK) status = position_rule(w, table->shape[0], &rule, error);
    if (status != ATTN_OK) return status;
    const int64_t shape[3] = {rule.heads, rule.len_q, rule.len_kv};
    if (attn_distance_buckets(&rule) != table->shape[1])
        return failure(error, ATTN_ERR_SHAPE, "tensor 'bias_table' has %" PRId64 " buckets, and the rule %" PRId64, table->shape[1],
                       attn_distance_buckets(&rule));
    if (!w->settings->backward) {
        const attn_input rows = read_of(table);
        status = add(w, "bias", table->dtype, 3, shape, &made, error);
        return status == ATTN_OK ? attn_distance_bias_fill(&rule, &rows, &made, error) : status;
    }
    status = small_tensor_find_shape(w->file, "dbias", 3, shape, "[head, query, key]", &dbias, error);
    if (status == ATTN_OK) status = add(w, "dbias_table", table->dtype, 2, table->shape, &made, error);
    const attn_input grad = status == ATTN_OK ? read_of(dbias) : (attn_input){0};
    return status == ATTN_OK ? attn_distance_bias_backward(&rule, &grad, &made, error) : status;
}

/* The gate of a bias: gates [.., head, query] from q, w, b and a. */
attn_status position_gate(position_work *w, attn_error *error)
{
    const attn_archive_tensor *q, *matrix, *b, *a, *dgates;
    int64_t shape[4] = {0};
    attn_output ignored;
    attn_status status = find_rows(w, "q", &q, shape, error);
    const int64_t columns[2] = {shape[3], -1};
    if (status == ATTN_OK) status = small_tensor_find_shape(w->file, "w", 2, columns, "[channel, 2 width]", &matrix, error);
    if (status == ATTN_OK && matrix->shape[1] % 2)
        status = failure(error, ATTN_ERR_SHAPE, "tensor 'w' has %" PRId64 " columns; half of them are of each sigmoid",
                         matrix->shape[1]);
    if (status == ATTN_OK) status = small_tensor_find_shape(w->file, "b", 1, &matrix->shape[1], "[2 width]", &b, error);
    if (status == ATTN_OK) status = small_tensor_find_shape(w->file, "a", 1, &shape[1], "[head]", &a, error);
    if (status != ATTN_OK) return status;
    const attn_bias_gate rule = {.struct_size = sizeof rule,
                                 .batch = shape[0],
                                 .heads = shape[1],
                                 .len_q = shape[2],
                                 .dim = shape[3],
                                 .width = matrix->shape[1] / 2};
    attn_bias_gate_tensors t = {.struct_size = sizeof t, .q = read_of(q), .w = read_of(matrix), .b = read_of(b), .a = read_of(a)};
    if (!w->settings->backward) {
        status = add(w, "gates", q->dtype, q->rank - 1, q->shape, &t.gates, error);
        return status == ATTN_OK ? attn_bias_gate_forward(&rule, &t, error) : status;
    }
    status = small_tensor_find_shape(w->file, "dgates", q->rank - 1, q->shape, "[.., head, query]", &dgates, error);
    if (status != ATTN_OK) return status;
    t.grad_gates = read_of(dgates);
    const struct {
        const char *name;
        const attn_archive_tensor *like;
        attn_output *slot;
    } made[] = {{"dq", q, &t.grad_q}, {"dw", matrix, &t.grad_w}, {"db", b, &t.grad_b}, {"da", a, &t.grad_a}};
    for (int k = 0; k < 4 && status == ATTN_OK; k++) {
        status = add(w, made[k].name, made[k].like->dtype, made[k].like->rank, made[k].like->shape, &ignored, error);
        *made[k].slot = ignored;
    }
    return status == ATTN_OK ? attn_bias_gate_backward(&rule, &t, error) : status;
}
