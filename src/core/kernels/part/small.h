/* SPDX-License-Identifier: MIT
 *
 * small.h - parts of a kernel: heads whose scores all fit a cache, forward and backward.
 */
#ifndef ATTN_KERNELS_PART_SMALL_H
#define ATTN_KERNELS_PART_SMALL_H

#include "tile.h"

/*
 * The steps of short heads, whose scores all fit a cache.  Here rows stay rows and keys lie in the lanes, so that O, dQ, dK and dV
 * come out as the caller has them, each as one chain of sums over all keys or queries, and of what a causal mask drops no more is
 * computed than a few rows and a vector of keys beside the diagonal.
 *
 *      Kt [dim][tile_q]    a tile of keys (or values), as pack_query makes it of them
 *      S  [rows][ld]       scores, a row for each query; ld is a multiple of lanes, and lanes past the last key may hold anything
 *
 * `sees` says what a causal mask leaves: row i sees the first sees + i keys, as far as there are as many and that is not negative.
 * All elements are of T, and head sizes are multiples of lanes.
 */
typedef struct attn_short_product {
    int64_t rows, steps, dim;
    const void *A; /* element (m, k) at m*row + k*step, of which one is 1 */
    int64_t row, step;
    const void *B; /* rows of ldb elements */
    int64_t ldb;
    int64_t from, to;    /* row m has the steps m + from .. m + to - 1, as far as there are such */
    const void *factors; /* of each row, factor_step apart, which may be 0 */
    int64_t factor_step;
    void *C; /* rows of ldc elements */
    int64_t ldc;
} attn_short_product;

/* A head without a mask, with queries in the lanes, who see all n keys. */
typedef struct attn_short_lanes {
    /* S and block_max as `score` of attn_product_part makes them. */
    void (*score)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                  const void *next, int64_t next_ld);
    /* In order, as score_beside_in_order has it. */
    void (*score_in_order)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                           const void *next, int64_t next_ld);
    /* S becomes weights, block_max m, and factors what `finish` below makes of l.  Returns 1 if some l is 0. */
    int (*weigh)(int width, int64_t rows, int64_t n, void *S, void *block_max, void *factors, void *lse, int64_t lse_stride);
    /* O[i][c] = factors[i] sum_j P[j][lane i] V[j][c]. */
    void (*values)(int64_t rows, int64_t n, int64_t dim, const void *P, const void *V, int64_t ldv, const void *factors, void *O,
                   int64_t ldo, attn_prefetch *prefetch);
} attn_short_lanes;

enum { ATTN_SHORT_FOUR = 4 };

typedef struct attn_small_part {
    attn_tile_shape shape;

    /* S[i][lane] = sum_c X[i][c] Kt[c][lane], but in vectors of which row i sees nothing. */
    void (*score)(int width, int64_t rows, int64_t dim, const void *X, int64_t ldx, const void *Kt, int64_t sees, void *S,
                  int64_t ld, attn_prefetch *prefetch);
    void (*score_in_order)(int width, int64_t rows, int64_t dim, const void *X, int64_t ldx, const void *Kt, int64_t sees, void *S,
                           int64_t ld, attn_prefetch *prefetch); /* a sum as tile.h has those in order */
    /* Rows of n scores become exp(S - m), m being the largest that the row sees, and 0 behind these for as many keys as a product
     * may take with them; l is their sum, lane by lane.  m, l and factors have rows up to a multiple of lanes. */
    void (*weigh)(int64_t rows, int64_t n, int64_t sees, void *S, int64_t ld, void *m, void *l);
    /* The same in the order of tiles, for n keys that are one of their blocks: m and l, which `begin` starts, absorb it, its
     * weights are summed keys ascending, and factors[i] is what O of the blocks before it is multiplied by. */
    void (*begin)(int64_t rows, void *m, void *l);
    void (*absorb)(int64_t rows, int64_t n, int64_t sees, void *S, int64_t ld, void *m, void *l, void *factors);
    /* lse[i*lse_stride] = m + log(l) (NULL: skipped), and l becomes 1 / l, or 0 where it is 0; returns 1 if it is somewhere. */
    int (*finish)(int64_t rows, const void *m, void *l, void *lse, int64_t lse_stride);
    /* C[m][c] = factor_m sum_k A[m][k] B[k][c].  May take more steps than row m has, where A is 0, the same for all rows of a few.
     * Returns 1 if some of C is not finite; then `careful` repeats it, slowly and with the same bits where it was, but without
     * those. */
    int (*product)(const attn_short_product *p, attn_prefetch *prefetch);
    void (*nan_safe)(const attn_short_product *p);
    /* C[i][c] = C[i][c] factors[i] + X[i][c], and all of it times inverse[i] unless that is NULL. */
    void (*join)(int64_t rows, int64_t dim, const void *factors, const void *inverse, const void *X, int64_t ldx, void *C,
                 int64_t ldc);

    attn_short_lanes tile;
    /* The same numbers for at most ATTN_SHORT_FOUR queries, in the first lanes of Qt, with S [n up to a multiple of 4][4] and a
     * vector each of block_max and factors.  NULL: they are not faster than a vector of a tile. */
    attn_short_lanes four;
} attn_small_part;

/* Their gradients, with `sees` as above. */
typedef struct attn_small_gradient_part {
    attn_tile_shape shape;

    /* As delta of attn_gradient_part, from rows. */
    void (*delta)(int64_t rows, int64_t dim_v, const void *dO, int64_t lddo, const void *O, int64_t ldo, const void *lse,
                  int64_t lse_stride, const void *grad_lse, int64_t grad_lse_stride, void *delta, void *lse_rows);
    /* S becomes P = exp(S - lse), and dS, which holds dP, becomes P (dP - delta), and 0 where P is 0 whatever stands in dP; both
     * are 0 behind what a row sees, as in weigh. */
    void (*gradient)(int width, int64_t rows, int64_t sees, void *S, int64_t ld, void *dS, int64_t ldd, const void *lse,
                     const void *delta);
} attn_small_gradient_part;

#endif
