/* SPDX-License-Identifier: MIT
 *
 * small.h - parts of a kernel: heads whose scores all fit in a cache, forward and backward.
 */
#ifndef ATTN_KERNELS_PART_SMALL_H
#define ATTN_KERNELS_PART_SMALL_H

#include "tile.h"

/*
 * The steps of short heads, whose scores all fit in a cache.  Here rows stay rows and keys lie in the lanes, so that O, dQ, dK and
 * dV come out in the caller's layout, each as one chain of sums over all keys or queries, and of the scores that a causal mask
 * drops, only a few rows and a vector of keys beside the diagonal are computed.
 *
 *      Kt [dim][tile_q]    a tile of keys (or values), packed by pack_query
 *      S  [rows][ld]       scores, a row for each query; ld is a multiple of lanes, and lanes past the last key may hold anything
 *
 * `sees` describes a causal mask: row i sees the first sees + i keys, clamped to 0 and the number of keys.  All elements are of T,
 * and head sizes are multiples of lanes.
 */
typedef struct attn_short_product {
    int64_t rows, steps, dim;
    const void *A; /* element (m, k) at m*row + k*step; row or step is 1 */
    int64_t row, step;
    const void *B; /* rows of ldb elements */
    int64_t ldb;
    int64_t from, to;    /* row m has the steps m + from .. m + to - 1, as far as they exist */
    const void *factors; /* one per row, factor_step apart, which may be 0 */
    int64_t factor_step;
    void *C; /* rows of ldc elements */
    int64_t ldc;
} attn_short_product;

/* A head without a mask: queries lie in the lanes, and each sees all n keys. */
typedef struct attn_short_lanes {
    /* S and block_max as in `score` of attn_product_part. */
    void (*score)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                  const void *next, int64_t next_ld);
    /* Ordered scores, as in score_beside_in_order. */
    void (*score_in_order)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                           const void *next, int64_t next_ld);
    /* S becomes weights, block_max becomes m, and factors get what `finish` below makes of l.  Returns 1 if any l is 0. */
    int (*exponentiate)(int width, int64_t rows, int64_t n, void *S, void *block_max, void *factors, void *lse, int64_t lse_stride);
    /* O[i][c] = factors[i] sum_j P[j][lane i] V[j][c]. */
    void (*values)(int64_t rows, int64_t n, int64_t dim, const void *P, const void *V, int64_t ldv, const void *factors, void *O,
                   int64_t ldo, attn_prefetch *prefetch);
} attn_short_lanes;

enum { ATTN_SHORT_FOUR = 4 };

typedef struct attn_small_part {
    attn_tile_shape shape;

    /* S[i][lane] = sum_c X[i][c] Kt[c][lane], except in vectors of which row i sees nothing. */
    void (*score)(int width, int64_t rows, int64_t dim, const void *X, int64_t ldx, const void *Kt, int64_t sees, void *S,
                  int64_t ld, attn_prefetch *prefetch);
    void (*score_in_order)(int width, int64_t rows, int64_t dim, const void *X, int64_t ldx, const void *Kt, int64_t sees, void *S,
                           int64_t ld, attn_prefetch *prefetch); /* ordered scores (tile.h) */
    /* Rows of n scores become exp(S - m), where m is the largest score that the row sees, and then 0 for as many keys as a product
     * may read past those; l is their sum, lane by lane.  m, l and factors have rows up to a multiple of lanes. */
    void (*exponentiate)(int64_t rows, int64_t n, int64_t sees, void *S, int64_t ld, void *m, void *l);
    /* The same in the order of tiles, for n keys that are one of their blocks: m and l, initialised by `begin`, absorb it; its
     * weights are summed keys ascending; and factors[i] is the factor for O of the earlier blocks. */
    void (*begin)(int64_t rows, void *m, void *l);
    void (*absorb)(int64_t rows, int64_t n, int64_t sees, void *S, int64_t ld, void *m, void *l, void *factors);
    /* lse[i*lse_stride] = m + log(l) (NULL: skipped), and l becomes 1 / l, or 0 where it is 0; returns 1 if any is 0. */
    int (*finish)(int64_t rows, const void *m, void *l, void *lse, int64_t lse_stride);
    /* C[m][c] = factor_m sum_k A[m][k] B[k][c].  May take more steps than row m has, where A is 0: rows of a register tile take the
     * same steps.  Returns 1 if any C is not finite; nan_safe then repeats the product without the extra steps, slowly and with the
     * same bits where they were finite. */
    int (*product)(const attn_short_product *p, attn_prefetch *prefetch);
    void (*nan_safe)(const attn_short_product *p);
    /* C[i][c] = C[i][c] factors[i] + X[i][c], times inverse[i] unless that is NULL. */
    void (*join)(int64_t rows, int64_t dim, const void *factors, const void *inverse, const void *X, int64_t ldx, void *C,
                 int64_t ldc);

    attn_short_lanes tile;
    /* The same numbers for at most ATTN_SHORT_FOUR queries, in the first lanes of Qt, with S [n up to a multiple of 4][4] and a
     * vector each of block_max and factors.  NULL: no faster than a vector of a tile. */
    attn_short_lanes four;
} attn_small_part;

/* Their gradients, with `sees` as above. */
typedef struct attn_small_gradient_part {
    attn_tile_shape shape;

    /* As delta of attn_gradient_part, but from rows. */
    void (*delta)(int64_t rows, int64_t dim_v, const void *dO, int64_t lddo, const void *O, int64_t ldo, const void *lse,
                  int64_t lse_stride, const void *grad_lse, int64_t grad_lse_stride, void *delta, void *lse_rows);
    /* S becomes P = exp(min(S - lse, 0)), and dS, which holds dP, becomes P (dP - delta), or 0 where P is 0, whatever dP holds;
     * both are 0 past the keys that a row sees, as in exponentiate. */
    void (*gradient)(int width, int64_t rows, int64_t sees, void *S, int64_t ld, void *dS, int64_t ldd, const void *lse,
                     const void *delta);
} attn_small_gradient_part;

#endif
