/* SPDX-License-Identifier: MIT
 *
 * gradient.h - a part of a kernel: gradients of the scores, and sums of them.
 */
#ifndef ATTN_KERNELS_PART_GRADIENT_H
#define ATTN_KERNELS_PART_GRADIENT_H

#include "tile.h"

/*
 * Backward takes its scores, dP^T = V dO^T (`score` with values as keys) and dQ (`add_values` with keys as values) from
 * attn_product_part.  Sums that end as one number are double.
 */
typedef struct attn_gradient_part {
    attn_tile_shape shape;

    /* delta[lane] = sum_c dOt[c][lane] Ot[c][lane] - grad_lse[lane] (NULL: 0), where a dOt whose Ot is 0 is ignored.
     * lse_lanes[lane] = lse[lane], or the largest finite number if that is -infinity or the row is not below `live`, so that
     * weights come out 0.  lse: T at lse_stride; grad_lse likewise. */
    void (*delta)(int width, int64_t rows, int64_t dim_v, const void *dOt, const void *Ot, const void *lse, int64_t lse_stride,
                  const void *grad_lse, int64_t grad_lse_stride, int64_t live, void *delta, void *lse_lanes);

    /*
     *      P = exp(min(S - lse, 0))      W = P, or with drop: keep * P if it keeps the weight, else 0      dS = W dP - P delta
     *
     * S becomes W and dP becomes dS.  Where P is 0, dS is 0, whatever dP holds; where W is 0, dP is not read.  scratch: like S.
     */
    void (*gradient)(int width, int64_t n, void *S, void *dP, const void *lse, const void *delta, const attn_drop *drop,
                     double keep, void *scratch);
    /* X *= Y, two buffers like S.  0 stays 0, even where Y is NaN. */
    void (*multiply)(int width, int64_t n, void *X, const void *Y);

    /* sum over c and lanes below rows of X[c][lane] Y[c][lane], reading X only where Y is not 0. */
    double (*inner)(int64_t rows, int64_t dim, const void *X, const void *Y);
    /* sum_ij dS_ij |first + i - j|. */
    double (*sum_distances)(int64_t rows, int64_t n, const void *dS, double first);
    /* sums[i + n-1 - j] += dS[j][i] for i < rows, n + width*lanes - 1 sums.  scratch: T[lanes * (n + (width + 1) * lanes)]. */
    void (*sum_diagonals)(int width, int64_t rows, int64_t n, const void *dS, void *scratch, double *sums);
    /* sums[j or 0][i or 0] += dS[j][i]: sums is like S; over_queries adds all into column 0, over_keys into row 0. */
    void (*reduce_pairs)(int64_t rows, int64_t n, const void *dS, int over_queries, int over_keys, void *sums);
} attn_gradient_part;

#endif
