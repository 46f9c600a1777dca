/* SPDX-License-Identifier: MIT
 *
 * double_backward.h - a part of a kernel: the steps of double backward.
 */
#ifndef ATTN_KERNELS_PART_DOUBLE_BACKWARD_H
#define ATTN_KERNELS_PART_DOUBLE_BACKWARD_H

#include "tile.h"

typedef struct attn_double_backward_part {
    attn_tile_shape shape;

    /* sums[lane] = sum_c Xt[c][lane] Yt[c][lane]. */
    void (*dot)(int width, int64_t dim, const void *Xt, const void *Yt, void *sums);

    /*
     *      P = exp(min(S - lse, 0))      W = P, or with drop: keep * P if it keeps the weight, else 0
     *
     *      dP = dS = W dP - P delta
     *      Sd = R  = (Sd - mu) dS + W h - P kappa
     *      S  = T  = W (Sd - mu)
     *
     * h: NULL for 0.  Where P is 0, all three are 0, whatever the other operands hold; where W is 0, neither dP nor h is read.
     * scratch: like S.
     */
    void (*score_gradients)(int width, int64_t n, void *S, void *dP, void *Sd, const void *h, const void *lse, const void *delta,
                            const void *mu, const void *kappa, const attn_drop *drop, double keep, void *scratch);

    /* Through the softcap: R = R slope + dS curvature before, then dS *= slope.  before: the tangents of the scores before the cap.
     * A 0 in R or dS contributes nothing, whatever the other operands hold. */
    void (*through_softcap)(int width, int64_t n, void *R, void *dS, const void *slope, const void *curvature, const void *before);
} attn_double_backward_part;

#endif
