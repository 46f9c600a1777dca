/* SPDX-License-Identifier: MIT
 * rows.c - what the walks of convolutions load from the caller's tensors and store there. */
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "convolution.h"

void *attn_convolution_row(const attn_convolution_block *block, const void *base, const attn_layout *layout, int64_t entry,
                           int64_t row)
{
    const int64_t elements = entry * layout->stride[0] + row * layout->stride[2] + block->channel;
    return (char *)(uintptr_t)base + elements * (int64_t)attn_dtype_bytes(layout->dtype);
}

void attn_convolution_load(const attn_convolution_block *block, const void *base, const attn_layout *layout, int64_t entry,
                           int64_t first, int64_t n, void *to)
{
    block->walk->kernel.storage->load_rows(n, block->channels, attn_convolution_row(block, base, layout, entry, first),
                                           layout->dtype, layout->stride[2], to, block->walk->ld);
}

void attn_convolution_store(const attn_convolution_block *block, void *base, const attn_layout *layout, int64_t entry,
                            int64_t first, int64_t n, const void *from)
{
    block->walk->kernel.storage->store_rows(n, block->channels, 1, from, block->walk->ld,
                                            attn_convolution_row(block, base, layout, entry, first), layout->dtype,
                                            layout->stride[2]);
}

attn_convolution_sequence attn_convolution_sequence_at(const attn_convolution_block *block, int64_t b)
{
    const attn_convolution_resolved *p = &block->walk->problem;
    const attn_convolution_args *a = block->args;
    attn_convolution_sequence s = {.b = b, .len = p->len, .initial = p->has.initial_state ? b : -1};
    if (p->has.initial_slots) s.initial = attn_index_at(a->initial_slots, p->at.initial_slots.dtype, b);
    if (p->has.cu_seqlens) {
        s.first = attn_index_at(a->cu_seqlens, p->at.cu_seqlens.dtype, b);
        s.len = attn_index_at(a->cu_seqlens, p->at.cu_seqlens.dtype, b + 1) - s.first;
    }
    return s;
}

void attn_convolution_clear(const attn_convolution_block *block, int64_t n, void *to)
{
    memset(to, 0, (size_t)(n * block->walk->ld) * attn_dtype_bytes(block->walk->compute));
}

void attn_convolution_inputs(const attn_convolution_block *block, const attn_convolution_sequence *s, int64_t first, int64_t n,
                             void *to)
{
    const attn_convolution_resolved *p = &block->walk->problem;
    const int64_t before = p->width - 1, row = block->walk->ld * (int64_t)attn_dtype_bytes(block->walk->compute);
    char *at = to;
    int64_t t = first;
    while (t < first + n) {
        const int64_t end = first + n, from = s->initial >= 0 ? -before : 0;
        int64_t next;
        if (t < from || t >= s->len) {
            next = t < from ? attn_min(end, from) : end;
            attn_convolution_clear(block, next - t, at);
        } else if (t < 0) {
            next = attn_min(end, 0);
            attn_convolution_load(block, block->args->initial_state, &p->at.initial_state, s->initial, t + before, next - t, at);
        } else {
            next = attn_min(end, s->len);
            attn_convolution_load(block, block->args->x, &p->at.x, s->b, s->first + t, next - t, at);
        }
        at += (next - t) * row;
        t = next;
    }
}
