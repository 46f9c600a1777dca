/* SPDX-License-Identifier: MIT
 * forward.c - the convolution of one sequence, a tile of tokens at a time; and its states, which are inputs as they are stored. */
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "convolution.h"

/* The state without the last j tokens, from the inputs and a copy of the initial state. */
static void store_state(const attn_convolution_block *block, const attn_convolution_sequence *s, int64_t j, int64_t row)
{
    const attn_convolution_walk *w = block->walk;
    const attn_convolution_resolved *p = &w->problem;
    const attn_layout *at = &p->at.final_state;
    const int64_t before = p->width - 1, size = (int64_t)attn_dtype_bytes(at->dtype);
    const size_t bytes = (size_t)(block->channels * size);
    for (int64_t i = 0; i < before; i++) {
        const int64_t t = s->len - j - before + i;
        void *to = attn_convolution_row(block, block->args->final_state, at, row, i);
        const void *raw = block->memory + w->raw + (t + before) * CONVOLUTION_CHANNELS * size;
        if (t >= 0) memcpy(to, attn_convolution_row(block, block->args->x, &p->at.x, s->b, s->first + t), bytes);
        else memcpy(to, raw, bytes);
    }
}

/* A final state may be written over the initial one. */
static void store_states(const attn_convolution_block *block, const attn_convolution_sequence *s)
{
    const attn_convolution_walk *w = block->walk;
    const attn_convolution_resolved *p = &w->problem;
    const int64_t size = (int64_t)attn_dtype_bytes(p->at.x.dtype), before = p->width - 1;
    const size_t bytes = (size_t)(block->channels * size);
    for (int64_t i = 0; i < before; i++) {
        char *raw = block->memory + w->raw + i * CONVOLUTION_CHANNELS * size;
        if (s->initial < 0) memset(raw, 0, bytes);
        else memcpy(raw, attn_convolution_row(block, block->args->initial_state, &p->at.initial_state, s->initial, i), bytes);
    }
    for (int64_t j = 0; j < p->snapshots && j <= s->len; j++) {
        int64_t row = s->b;
        if (p->has.final_slots) row = attn_index_at(block->args->final_slots, p->at.final_slots.dtype, s->b * p->snapshots + j);
        if (row >= 0) store_state(block, s, j, row);
    }
}

void attn_convolution_forward(const attn_convolution_block *block, const attn_convolution_sequence *s)
{
    const attn_convolution_walk *w = block->walk;
    const attn_convolution_resolved *p = &w->problem;
    const int64_t before = p->width - 1;
    void *X = attn_convolution_memory(block, w->X, 0), *Y = attn_convolution_memory(block, w->Y, 0);
    for (int64_t t = 0; t < s->len; t += CONVOLUTION_TOKENS) {
        const int64_t n = attn_min(CONVOLUTION_TOKENS, s->len - t);
        attn_convolution_inputs(block, s, t - before, n + before, X);
        w->kernel.convolution->rows(n, block->channels, p->width, p->silu, X, attn_convolution_memory(block, w->weights, 0),
                                    attn_convolution_memory(block, w->bias, 0), Y, w->ld);
        attn_convolution_store(block, block->args->y, &p->at.y, s->b, s->first + t, n, Y);
    }
    if (p->has.final_state) store_states(block, s);
}
