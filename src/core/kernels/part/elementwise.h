/* SPDX-License-Identifier: MIT
 *
 * elementwise.h - a part of a kernel: elementwise weights, each a function of its own score only.
 */
#ifndef ATTN_KERNELS_PART_ELEMENTWISE_H
#define ATTN_KERNELS_PART_ELEMENTWISE_H

#include "tile.h"

/*
 * Weights that depend only on their own score: `kind` is ATTN_NORMALISER_SIGMOID, 1 / (1 + exp(-S - shift)), or
 * ATTN_NORMALISER_RELU, max(S, 0).  A dropped key, whose S is -infinity, has weight 0.
 */
typedef struct attn_elementwise_part {
    attn_tile_shape shape;

    /* S becomes weights;  l += the number of keys not dropped.  drop: NULL, or the weights to clear afterwards (l counts them). */
    void (*weights)(attn_normaliser kind, double shift, int width, int64_t n, void *S, const attn_drop *drop, void *l);
    /* l = 1 where it is above 0, else 0. */
    void (*clamp_denominator)(int width, void *l);
    /* S becomes weights / l, or 0 where l is 0. */
    void (*weights_over)(attn_normaliser kind, double shift, int width, int64_t n, void *S, const void *l);
    /* With f the weight and Z = keep where drop keeps it, else 0:  dP = Z dP f'(S) exp(-lse), and 0 where the other factors are 0,
     * whatever dP holds;  S = Z f(S) exp(-lse).  scratch: like S. */
    void (*gradient)(attn_normaliser kind, double shift, int width, int64_t n, void *S, void *dP, const void *lse,
                     const attn_drop *drop, double keep, void *scratch);
} attn_elementwise_part;

#endif
