/* SPDX-License-Identifier: MIT
 *
 * elementwise.h - a part of a kernel: weights that are a function of their own score alone.
 */
#ifndef ATTN_KERNELS_PART_ELEMENTWISE_H
#define ATTN_KERNELS_PART_ELEMENTWISE_H

#include "tile.h"

/*
 * Weights that are a function of their own score alone: `kind` is ATTN_NORMALISER_SIGMOID, 1 / (1 + exp(-S - shift)), or
 * ATTN_NORMALISER_RELU, max(S, 0).  A dropped key, whose S is -infinity, has weight 0.
 */
typedef struct attn_elementwise_part {
    attn_tile_shape shape;

    /* S becomes weights;  l += how many keys are not dropped.  drop: NULL, or which weights are then made 0 (l has them). */
    void (*weights)(attn_normaliser kind, double shift, int width, int64_t n, void *S, const attn_drop *drop, void *l);
    /* l = 1 where it is above 0, else 0. */
    void (*clamp_denominator)(int width, void *l);
    /* S becomes weights over l; 0 where l is 0. */
    void (*weights_over)(attn_normaliser kind, double shift, int width, int64_t n, void *S, const void *l);
    /* With f the weight and Z = keep where drop keeps it, 0 where not:  dP = Z dP f'(S) exp(-lse), 0 where the rest is, whatever
     * stands in it;  S = Z f(S) exp(-lse).  scratch: like S. */
    void (*gradient)(attn_normaliser kind, double shift, int width, int64_t n, void *S, void *dP, const void *lse,
                     const attn_drop *drop, double keep, void *scratch);
} attn_elementwise_part;

#endif
