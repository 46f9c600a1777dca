/* SPDX-License-Identifier: MIT
 * transfer.h - tokens on their way from one tensor to another: rotated by their positions, converted or quantised; calls are
 * already validated. */
#ifndef ATTN_WALK_TRANSFER_TRANSFER_H
#define ATTN_WALK_TRANSFER_TRANSFER_H

#include "../../kernels/kernel.h"
#include "attn/position.h"

/* Where a token comes from and goes, and its position. */
typedef struct attn_transfer_token {
    int64_t entry, token, to_entry, to_token;
    int64_t position;
    int plain; /* 1: only converted, not rotated */
    int again; /* 1: it is rotated for position `was`, and is rotated on */
    int64_t was;
} attn_transfer_token;

/* Token n; 0: it is skipped. */
typedef int attn_transfer_find(const void *context, int64_t n, attn_transfer_token *token);

/* One tensor of the tokens, [entry, head, token, channel], and where it goes. */
typedef struct attn_transfer_tensor {
    int64_t heads, dim;
    attn_input from;       /* quantised: of the same tensor as `to`, and copied with its scale */
    attn_output to, scale; /* scale [entry, head, token, 1]: if `to` is i8, or f8 with scales */
    const attn_rope *rope; /* from attn_rope_read; NULL: none.  If `to` is quantised, dim <= ATTN_ROTATED_CHANNELS */
    int given;             /* 1: scale is only read */
    int angles; /* 1: `to`, dense and of f64, gets dim / 2 cosines of each token and as many sines, and `from` is not read */
} attn_transfer_tensor;

/* The most channels of a row that is rotated and then quantised, which is done on the stack. */
enum { ATTN_ROTATED_CHANNELS = 4096 };

/* Keys that are quantised by channel: token n of entry b is number b * each + n, n ascending until there is none, and passes
 * through the entry's tail, [entry, head, ATTN_TAIL, channel] of f16, whose group is quantised when it is full. */
typedef struct attn_transfer_groups {
    int64_t entries, each; /* 0: none */
    attn_transfer_tensor keys;
    attn_output tail;
} attn_transfer_groups;

typedef struct attn_transfer_walk {
    const attn_transfer_part *kernel;
    attn_parallel_for *parallel_for;
    void *parallel_context;
    int threads;
    int64_t tokens;
    attn_transfer_find *find;
    const void *context;
    attn_transfer_tensor tensor[2];
    int tensors;
    attn_transfer_groups groups;
} attn_transfer_walk;

/* The number of elements that are moved, for the choice of threads; inexact beyond 2^53. */
double attn_transfer_size(const attn_transfer_walk *walk);
/* Below so many elements one thread is enough. */
#define ATTN_TRANSFER_SERIAL 0x1p17

void attn_run_transfer(const attn_transfer_walk *walk);

/* The blocks by channel of ATTN_BLOCK rows of dim channels, rounded to f16 first; `key`: where the first key is, `stride` blocks
 * from one to the next. */
void attn_transfer_group(const attn_transfer_part *kernel, int64_t dim, attn_transfer_rows rows, uint8_t *key, int64_t stride);

#endif
