/* SPDX-License-Identifier: MIT
 * tensor.c - tensors of checks in guarded memory. */
#include "tensor.h"

#include <string.h>

#include "element.h"

int tensor_create(tensor *t, attn_dtype dtype, const int64_t size[4], const tensor_plan *plan)
{
    const size_t bytes = attn_dtype_size(dtype);
    int64_t step = plan->inner, first = 0, elements = 1;
    int empty = 0;
    *t = (tensor){.layout.dtype = dtype};
    for (int k = 3; k >= 0; k--) {
        const int axis = plan->order[k];
        const int64_t n = plan->broadcast[axis] ? 1 : size[axis];
        t->size[axis] = size[axis];
        if (size[axis] == 0) empty = 1;
        const int64_t last = n > 0 ? (n - 1) * step : 0;
        t->stride[axis] = plan->broadcast[axis] ? 0 : plan->backward[axis] ? -step : step;
        t->layout.stride[axis] = plan->broadcast[axis] ? ATTN_BROADCAST : t->stride[axis];
        if (plan->backward[axis]) first += last;
        elements += last;
        step = (n > 0 ? n : 1) * step + plan->gap[axis];
    }
    if (empty) elements = 0;
    if (!guarded_create(&t->block, (size_t)elements * bytes, plan->side, (size_t)plan->shift * bytes)) return 0;
    t->base = t->block.data + (size_t)first * bytes;
    return 1;
}

void tensor_destroy(tensor *t)
{
    guarded_destroy(&t->block);
    *t = (tensor){0};
}

void *tensor_at(const tensor *t, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const int64_t element = b * t->stride[0] + h * t->stride[1] + i * t->stride[2] + c * t->stride[3];
    return (char *)t->base + element * (int64_t)attn_dtype_size(t->layout.dtype);
}

int tensor_take(tensor *t, double *dst)
{
    const size_t bytes = attn_dtype_size(t->layout.dtype);
    for (int64_t b = 0; b < t->size[0]; b++)
        for (int64_t h = 0; h < t->size[1]; h++)
            for (int64_t i = 0; i < t->size[2]; i++)
                for (int64_t c = 0; c < t->size[3]; c++) {
                    void *at = tensor_at(t, b, h, i, c);
                    *dst++ = element_read(t->layout.dtype, at);
                    memset(at, GUARD_BYTE, bytes);
                }
    for (size_t k = 0; k < t->block.bytes; k++)
        if (t->block.data[k] != GUARD_BYTE) return 0;
    return guarded_intact(&t->block);
}
