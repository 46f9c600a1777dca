/* SPDX-License-Identifier: MIT
 * share.c - see share.h. */
#include "share.h"

#include <string.h>

#include "parts.h"
#include "testing/text/failure.h"

/* ---- layouts ---- */

/* The axis of the rows of tensor t in files; -1: it has none. */
static int axis_of(const attention_input *input, int t, int rank)
{
    const attn_axis *axes = tensors_about(t)->axes;
    const int is_scale = t == TENSOR(k_scale) || t == TENSOR(v_scale);
    const int by_token = input->spec.order == SPEC_BSHD; /* before heads */
    if (axes[2] == ATTN_AXIS_BLOCK_Q || axes[3] == ATTN_AXIS_KEY || axes[3] == ATTN_AXIS_TOPK) return rank - 2;
    if (axes[2] != ATTN_AXIS_QUERY && axes[2] != ATTN_AXIS_KEY) return -1;
    if (is_scale) return axis_of(input, t == TENSOR(k_scale) ? TENSOR(k) : TENSOR(v), input->used[TENSOR(k)].tensor->rank);
    if (axes[3] == ATTN_AXIS_ONE) return rank - 1;
    return by_token && rank > 2 ? rank - 3 : rank - 2;
}

/* 1 for the masks and biases of packed sequences, each of which has its own. */
static int all_have(const attention_input *input, int t)
{
    const attn_axis *axes = tensors_about(t)->axes;
    return input->spec.packed && !tensors_packs(t) && axes[2] == ATTN_AXIS_QUERY;
}

int share_lay(const attention_input *input, int t, int rank, const int64_t *shape, attn_dtype dtype, share_layout *layout)
{
    const attn_axis of = tensors_about(t)->axes[2];
    const int axis = all_have(input, t) ? -1 : axis_of(input, t, rank), keys = of == ATTN_AXIS_KEY;
    const int64_t unit = of == ATTN_AXIS_BLOCK_Q ? input->spec.block_q : 1, tokens = keys ? input->total_kv : input->total_q;
    if (axis < 0 || axis >= rank || unit < 1 || shape[axis] != problem_blocks(tokens, unit)) return 0;
    *layout = (share_layout){keys, unit, 1, shape[axis], attn_dtype_size(dtype)};
    for (int a = 0; a < axis; a++) layout->outer *= shape[a];
    for (int a = axis + 1; a < rank; a++) layout->row *= (size_t)shape[a];
    return 1;
}

/* ---- rows ---- */

/* The rows of range n. */
static token_range rows_of(const input_share *share, const share_layout *layout, int64_t n)
{
    const token_range *r = &share->ranges[layout->keys][n];
    const int64_t first = r->first / layout->unit;
    return (token_range){first, problem_blocks(r->first + r->tokens, layout->unit) - first};
}

int64_t share_rows(const input_share *share, const share_layout *layout)
{
    int64_t rows = 0;
    for (int64_t n = 0; n < share->count[layout->keys]; n++) rows += rows_of(share, layout, n).tokens;
    return rows;
}

void share_take(const input_share *share, const share_layout *layout, const void *whole, void *own)
{
    char *to = own;
    for (int64_t x = 0; x < layout->outer; x++)
        for (int64_t n = 0; n < share->count[layout->keys]; n++) {
            const token_range r = rows_of(share, layout, n);
            const size_t bytes = (size_t)r.tokens * layout->row;
            if (bytes) memmove(to, (const char *)whole + (size_t)(x * layout->rows + r.first) * layout->row, bytes);
            to += bytes;
        }
}

/* ---- the tensors of a file ---- */

attn_status input_take_share(attention_input *input, const input_settings *settings, attn_error *error)
{
    if (!settings->choose) return ATTN_OK;
    attn_status status = settings->choose(settings->choose_context, input->total_q, input->total_kv, &input->share, error);
    if (status != ATTN_OK) return failure_about(error, input->path);
    input->is_shared = 1;
    for (int t = 0; t < TENSORS; t++) {
        const attn_archive_tensor *whole = input->used[t].tensor;
        attn_archive_tensor *own = &input->own[t];
        share_layout layout;
        if (!whole || !share_lay(input, t, whole->rank, whole->shape, whole->dtype, &layout)) continue;
        const int64_t rows = layout.outer * share_rows(&input->share, &layout);
        void *data = input_alloc(input, rows, layout.row);
        share_take(&input->share, &layout, whole->data, data);
        *own = *whole;
        own->data = data;
        own->bytes = (size_t)rows * layout.row;
        input->used[t].tensor = own;
    }
    return ATTN_OK;
}

int64_t input_tokens(const attention_input *input, int keys)
{
    if (input->is_shared) return input->share.tokens[keys];
    if (input->spec.packed) return keys ? input->total_kv : input->total_q;
    return keys ? input->problem.shape.len_kv : input->problem.shape.len_q;
}

void input_keep_share(const attention_input *input, int keys, int64_t batch, int64_t *numbers)
{
    const int64_t tokens = keys ? input->total_kv : input->total_q;
    const share_layout layout = {keys, 1, batch, tokens, sizeof *numbers};
    if (input->is_shared) share_take(&input->share, &layout, numbers, numbers); /* in place: the ranges rise */
}

/* Axes from the one with the largest stride on; channels are last in every file, which strides of nothing do not tell. */
static void order_of(const int64_t stride[4], int order[4])
{
    order[3] = 3;
    for (int n = 0; n < 3; n++) {
        int at = n;
        for (; at > 0 && stride[order[at - 1]] < stride[n]; at--) order[at] = order[at - 1];
        order[at] = n;
    }
}

void input_lay_share(attention_input *input)
{
    for (int t = 0; t < TENSORS && input->is_shared; t++) {
        const attn_axis of = tensors_about(t)->axes[2];
        attn_output *slot = tensors_slot(&input->tensors, t);
        const share_layout layout = {.keys = of == ATTN_AXIS_KEY, .unit = of == ATTN_AXIS_BLOCK_Q ? input->spec.block_q : 1};
        int64_t shape[4], stride[4];
        int order[4], one = 0;
        if (of != ATTN_AXIS_QUERY && of != ATTN_AXIS_KEY && of != ATTN_AXIS_BLOCK_Q) continue;
        if (!slot->data || tensors_broadcasts(&input->tensors, t, 2) || all_have(input, t)) continue;
        tensors_shape(&input->problem, &input->tensors, t, shape);
        const int primal = tensors_about(t)->gradient_of;
        if (primal >= 0 && tensors_broadcasts(&input->tensors, primal, 2) && shape[2] == 1) continue; /* a sum over all queries */
        tensors_strides(&input->problem, &input->tensors, t, stride);
        for (int axis = 0; axis < 4; axis++) one |= tensors_broadcasts(&input->tensors, t, axis) << axis;
        if (input->spec.packed && tensors_packs(t)) shape[0] = 1;
        shape[2] = share_rows(&input->share, &layout);
        order_of(stride, order);
        (void)tensors_lay(slot, shape, order, one);
    }
}

/* ---- what masks drop ---- */

void share_count(const attention_input *input, int t, int64_t counts[2])
{
    const attn_archive_tensor *mask = input->used[t].tensor;
    counts[0] = mask ? input_zeros(mask) : 0;
    counts[1] = mask ? (int64_t)mask->bytes : 0;
}

void share_set_dropped(attention_input *input, int t, const int64_t counts[2])
{
    if (!input->used[t].tensor) return;
    *(t == TENSOR(mask) ? &input->spec.mask_drop : &input->spec.block_drop) = input_dropped(counts[0], counts[1]);
}
