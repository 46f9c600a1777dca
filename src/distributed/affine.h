/* SPDX-License-Identifier: MIT
 *
 * affine.h - what a part of tokens does to a state, S -> A S + B, for each head: A [features][width] is nothing (width 0: the
 * identity), a factor for each row (1) or a matrix (features).  All are dense, [heads] of them. */
#ifndef ATTN_DISTRIBUTED_AFFINE_H
#define ATTN_DISTRIBUTED_AFFINE_H

#include "attn/attn.h"

typedef struct attn_affine {
    attn_dtype compute;                    /* f32 or f64 */
    int64_t heads, features, width, dim_v; /* B and S are [features][dim_v] */
    int normalised;                        /* and have sums behind them, [heads][features]; then width is 0 or 1 */
} attn_affine;

size_t attn_affine_map_bytes(const attn_affine *a);
size_t attn_affine_state_bytes(const attn_affine *a);

/* to += A from, of states. */
void attn_affine_add(const attn_affine *a, const void *map, const void *from, void *to);
/* to = later earlier, of maps. */
void attn_affine_multiply(const attn_affine *a, const void *later, const void *earlier, void *to);
/* to = the transposes. */
void attn_affine_transpose(const attn_affine *a, const void *map, void *to);
/* The map of no tokens, for one head. */
void attn_affine_identity(const attn_affine *a, void *map);

#endif
