/* SPDX-License-Identifier: MIT
 *
 * tangent.h - a part of a kernel: the steps of forward-mode differentiation.
 */
#ifndef ATTN_KERNELS_PART_TANGENT_H
#define ATTN_KERNELS_PART_TANGENT_H

#include "tile.h"

typedef struct attn_tangent_part {
    attn_tile_shape shape;

    /* Sd += other (NULL: 0). */
    void (*add_tangents)(int width, int64_t n, void *Sd, const void *other);

    /*
     *      P = exp(min(S - lse, 0))      W = P, or with drop: keep * P if it keeps the weight, else 0
     *      mu[lane] += sum_j P_j Sd_j      S = W      Sd = W Sd
     *
     * Sd is not read where P is 0, nor for the product where W is 0.
     */
    void (*tangent)(int width, int64_t n, void *S, void *Sd, const void *lse, const attn_drop *drop, double keep, void *mu);

    /* At -= mu Ot: Ot is not read where mu is 0. */
    void (*center)(int width, int64_t dim_v, const void *mu, const void *Ot, void *At);
} attn_tangent_part;

#endif
