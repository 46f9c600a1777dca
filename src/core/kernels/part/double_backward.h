/* SPDX-License-Identifier: MIT
 *
 * double_backward.h - a part of a kernel: the steps of the second order.
 */
#ifndef ATTN_KERNELS_PART_DOUBLE_BACKWARD_H
#define ATTN_KERNELS_PART_DOUBLE_BACKWARD_H

#include "tile.h"

typedef struct attn_double_backward_part {
    attn_tile_shape shape;

    /* sums[lane] = sum_c Xt[c][lane] Yt[c][lane]. */
    void (*dot)(int width, int64_t dim, const void *Xt, const void *Yt, void *sums);

    /*
     *      P = exp(S - lse)      W = P, or keep * P where drop keeps it and 0 where not
     *
     *      dP = dS = W dP - P delta
     *      Sd = R  = (Sd - mu) dS + W h - P kappa
     *      S  = T  = W (Sd - mu)
     *
     * h: NULL for 0.  Where P is 0 so are all three, whatever stands in the others; where W is 0, neither dP nor h is read.
     * scratch: like S.
     */
    void (*second)(int width, int64_t n, void *S, void *dP, void *Sd, const void *h, const void *lse, const void *delta,
                   const void *mu, const void *kappa, const attn_drop *drop, double keep, void *scratch);

    /* R = R slope + dS bend before, then dS *= slope: through the softcap.  before: the tangents of the scores ahead of it.  What
     * is 0 in R or dS adds nothing, whatever stands in the others. */
    void (*through_softcap)(int width, int64_t n, void *R, void *dS, const void *slope, const void *bend, const void *before);
} attn_double_backward_part;

#endif
