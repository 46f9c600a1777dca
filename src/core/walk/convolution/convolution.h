/* SPDX-License-Identifier: MIT
 *
 * convolution.h - the walk of short causal convolutions.  A task is a block of channels of all sequences: its weights are converted
 * once, and gradients of weights are sums in one order, whatever the threads.  Walks cannot fail and allocate nothing.
 */
#ifndef ATTN_WALK_CONVOLUTION_CONVOLUTION_H
#define ATTN_WALK_CONVOLUTION_CONVOLUTION_H

#include "../../base/convolution_problem.h"
#include "../../kernels/kernel.h"

enum {
    CONVOLUTION_CHANNELS = 256, /* of a task */
    CONVOLUTION_TOKENS = 32,    /* of a tile */
    CONVOLUTION_BEFORE = 3      /* tokens before the first one, at most */
};

typedef struct attn_convolution_walk {
    attn_convolution_resolved problem;
    attn_dtype compute;
    attn_kernel kernel;
    int64_t ld; /* between rows of a worker's memory */
    int64_t tasks;
    int workers;
    attn_parallel_for *parallel_for;
    void *parallel_context;
    int64_t weights, bias, X, Y, dX, dweights, dbias, raw; /* offsets in a worker's memory */
    int64_t bytes;                                         /* of a worker */
} attn_convolution_walk;

void attn_convolution_walk_init(attn_convolution_walk *walk, int threads);
void attn_run_convolution(const attn_convolution_walk *walk, const attn_convolution_args *args, void *workspace);

/* ---- a block of channels ---- */

typedef struct attn_convolution_block {
    const attn_convolution_walk *walk;
    const attn_convolution_args *args;
    char *memory;
    int64_t channel, channels; /* the first one, and how many */
} attn_convolution_block;

/* The tokens of a sequence. */
typedef struct attn_convolution_sequence {
    int64_t b, first, len; /* first: its first token in a ragged batch */
    int64_t initial;       /* the row of its initial state; -1: none, it is 0 */
} attn_convolution_sequence;

attn_convolution_sequence attn_convolution_sequence_at(const attn_convolution_block *block, int64_t b);

static inline void *attn_convolution_memory(const attn_convolution_block *block, int64_t offset, int64_t row)
{
    const attn_convolution_walk *w = block->walk;
    return block->memory + offset + row * w->ld * (w->compute == ATTN_F64 ? 8 : 4);
}

/* The block's channels in row `row` of entry `entry` of a caller's tensor. */
void *attn_convolution_row(const attn_convolution_block *block, const void *base, const attn_layout *layout, int64_t entry,
                           int64_t row);

/* n rows of a caller's tensor in the compute type. */
void attn_convolution_load(const attn_convolution_block *block, const void *base, const attn_layout *layout, int64_t entry,
                           int64_t first, int64_t n, void *to);
void attn_convolution_store(const attn_convolution_block *block, void *base, const attn_layout *layout, int64_t entry,
                            int64_t first, int64_t n, const void *from);

/* n rows of a worker's memory = 0. */
void attn_convolution_clear(const attn_convolution_block *block, int64_t n, void *to);

/* n inputs of a sequence from token `first` on, which may be before its first one (its state) or, past its last one, 0. */
void attn_convolution_inputs(const attn_convolution_block *block, const attn_convolution_sequence *s, int64_t first, int64_t n,
                             void *to);

void attn_convolution_forward(const attn_convolution_block *block, const attn_convolution_sequence *s);
void attn_convolution_backward(const attn_convolution_block *block, const attn_convolution_sequence *s);

#endif
