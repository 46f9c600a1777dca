/* SPDX-License-Identifier: MIT
 * cache.c - past and new keys or values as one tensor; where queries stand among them. */
#include <string.h>

#include "shim.h"

ort_status *expect_sizes(const char *name, const int64_t sizes[4], const int64_t want[4])
{
    value v = {.name = name, .rank = 4};
    memcpy(v.size, sizes, 4 * sizeof *sizes);
    return expect(&v, 4, want);
}

/* past and then now, along the axis of tokens, into whole, of sizes {B, heads, tokens, dim}. */
static void append(const value *past, const attn_input *now, void *whole, const int64_t sizes[4])
{
    const size_t element = attn_dtype_size(now->dtype);
    const int64_t before = past->data ? past->size[2] : 0, row = sizes[3];
    for (int64_t b = 0; b < sizes[0]; b++)
        for (int64_t h = 0; h < sizes[1]; h++) {
            char *to = (char *)whole + (size_t)((b * sizes[1] + h) * sizes[2] * row) * element;
            const char *from = (const char *)now->data + (size_t)(b * now->stride[0] + h * now->stride[1]) * element;
            const size_t bytes = (size_t)(before * row) * element;
            if (bytes) memcpy(to, (const char *)past->data + (size_t)(b * sizes[1] + h) * bytes, bytes);
            to += bytes;
            if (now->stride[2] == row) {
                memcpy(to, from, (size_t)((sizes[2] - before) * row) * element);
                continue;
            }
            for (int64_t t = 0; t < sizes[2] - before; t++)
                memcpy(to + (size_t)(t * row) * element, from + (size_t)(t * now->stride[2]) * element, (size_t)row * element);
        }
}

ort_status *joined(call *c, const value *past, size_t index, const char *name, int type, attn_input *slot, int64_t sizes[4])
{
    value present;
    int64_t whole[4] = {sizes[0], sizes[1], sizes[2], sizes[3]};
    if (past->data) {
        const int64_t want[4] = {sizes[0], sizes[1], past->rank == 4 ? past->size[2] : 0, sizes[3]};
        TRY(expect(past, 4, want));
        whole[2] += past->size[2];
    }
    TRY(call_output(c, index, name, 4, whole, type, &present));
    if (!present.data && !past->data) return NULL;
    if (!present.data) TRY(call_scratch(c, whole[0] * whole[1] * whole[2] * whole[3], attn_dtype_size(slot->dtype), &present.data));
    if (present.data != ATTN_EMPTY) append(past, slot, present.data, whole);
    memcpy(sizes, whole, sizeof whole);
    *slot = dense(present.data, slot->dtype, whole);
    return NULL;
}

ort_status *set_position(call *c, int causal, int64_t left, int64_t right, int64_t before)
{
    const attn_shape *shape = &c->problem.shape;
    attn_mask *mask = &c->problem.mask;
    int64_t *offsets;
    mask->causal = causal;
    if (left >= 0 || right >= 0) {
        mask->window = 1;
        mask->window_left = left;
        mask->window_right = right;
    }
    if ((!mask->causal && !mask->window) || !before) return NULL;
    if (before < 0 || (before == shape->len_kv - shape->len_q && !c->tensors.lengths_kv.data)) {
        mask->align = ATTN_ALIGN_BOTTOM_RIGHT;
        return NULL;
    }
    TRY(call_scratch(c, shape->batch, sizeof *offsets, (void **)&offsets));
    for (int64_t b = 0; b < shape->batch; b++) offsets[b] = before;
    c->tensors.offset_q = (attn_input){offsets, ATTN_I64, {1, 0, 0, 0}};
    return NULL;
}
