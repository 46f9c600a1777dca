/* SPDX-License-Identifier: MIT
 *
 * backward.c - the gradients of one sequence, a tile of tokens at a time.  With g_t the gradient of the sum of token t,
 *
 *      dx_t = sum_i weight_i g_(t + width-1 - i)       dweight_i = sum_t g_t x_(t - (width-1) + i)       dbias = sum_t g_t
 *
 * so a tile needs the g of the width-1 tokens after it too, which are computed twice.  The final state is the last width-1 inputs,
 * and its gradient is added to theirs.
 */
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "convolution.h"

/* Rows first .. first+n-1 of dX, which may be before the first token, begin with the gradient of the final state. */
static void begin_inputs(const attn_convolution_block *block, const attn_convolution_sequence *s, int64_t first, int64_t n)
{
    const attn_convolution_walk *w = block->walk;
    const attn_convolution_resolved *p = &w->problem;
    const int64_t before = p->width - 1, kept = s->len - before;
    const int64_t from = attn_clamp(kept, first, first + n);
    memset(attn_convolution_memory(block, w->dX, 0), 0, (size_t)(n * w->ld) * attn_dtype_bytes(w->compute));
    if (!p->has.grad_final_state || from == first + n) return;
    attn_convolution_load(block, block->args->grad_final_state, &p->at.grad_final_state, s->b, from - kept,
                          attn_min(first + n, s->len) - from, attn_convolution_memory(block, w->dX, from - first));
}

static void tile(const attn_convolution_block *block, const attn_convolution_sequence *s, int64_t first, int64_t n)
{
    const attn_convolution_walk *w = block->walk;
    const attn_convolution_resolved *p = &w->problem;
    const attn_convolution_part *kernel = w->kernel.convolution;
    const int64_t before = p->width - 1, rows = n + before;
    const int64_t low = attn_clamp(-first, 0, rows), high = attn_clamp(s->len - first, low, rows); /* those of tokens that exist */
    const void *weights = attn_convolution_memory(block, w->weights, 0), *bias = attn_convolution_memory(block, w->bias, 0);
    void *G = attn_convolution_memory(block, w->Y, 0);
    memset(G, 0, (size_t)(rows * w->ld) * attn_dtype_bytes(w->compute));
    begin_inputs(block, s, first, n);
    if (high > low) {
        void *own = attn_convolution_memory(block, w->Y, low), *X = attn_convolution_memory(block, w->X, low);
        attn_convolution_load(block, block->args->grad_y, &p->at.grad_y, s->b, s->first + first + low, high - low, own);
        attn_convolution_inputs(block, s, first + low - before, high - low + before, X);
        if (p->silu) kernel->through(high - low, block->channels, p->width, X, weights, bias, own, w->ld);
        const int64_t counted = attn_max(0, attn_min(high, n) - low); /* the others belong to the next tile */
        if (counted)
            kernel->add_weights(counted, block->channels, p->width, X, own, attn_convolution_memory(block, w->dweights, 0),
                                attn_convolution_memory(block, w->dbias, 0), w->ld);
    }
    kernel->add_inputs(n, block->channels, p->width, G, weights, attn_convolution_memory(block, w->dX, 0), w->ld);
}

void attn_convolution_backward(const attn_convolution_block *block, const attn_convolution_sequence *s)
{
    const attn_convolution_walk *w = block->walk;
    const attn_convolution_resolved *p = &w->problem;
    const int64_t before = p->width - 1;
    const void *dX = attn_convolution_memory(block, w->dX, 0);
    if (p->has.grad_initial_state) {
        tile(block, s, -before, before);
        attn_convolution_store(block, block->args->grad_initial_state, &p->at.grad_initial_state, s->b, 0, before, dX);
    }
    for (int64_t t = 0; t < s->len; t += CONVOLUTION_TOKENS) {
        const int64_t n = attn_min(CONVOLUTION_TOKENS, s->len - t);
        tile(block, s, t, n);
        attn_convolution_store(block, block->args->grad_x, &p->at.grad_x, s->b, s->first + t, n, dX);
    }
}
