/* SPDX-License-Identifier: MIT
 *
 * convolution.h - a part of a kernel: the short causal convolution of attn/convolution.h, on rows of channels in the compute type.
 */
#ifndef ATTN_KERNELS_PART_CONVOLUTION_H
#define ATTN_KERNELS_PART_CONVOLUTION_H

#include "tile.h"

/*
 * Rows are `ld` apart, a multiple of lanes, and the lanes past `channels` may hold anything.  X has the width-1 rows before the
 * first of n tokens and then these; weights [width][ld]; bias [ld].
 */
typedef struct attn_convolution_part {
    attn_tile_shape shape;

    /* Y[t] = f(bias + sum_i weights[i] X[t + i]), with f the identity, or x / (1 + exp(-x)). */
    void (*rows)(int64_t n, int64_t channels, int width, int silu, const void *X, const void *weights, const void *bias, void *Y,
                 int64_t ld);
    /* G[t], the gradient of Y[t], becomes that of the sum. */
    void (*through)(int64_t n, int64_t channels, int width, const void *X, const void *weights, const void *bias, void *G,
                    int64_t ld);
#ifndef ATTN_INFERENCE_ONLY /* base/inference.h */
    /* dX[t] += sum_i weights[i] G[t + width-1 - i]: G has n + width-1 rows. */
    void (*add_inputs)(int64_t n, int64_t channels, int width, const void *G, const void *weights, void *dX, int64_t ld);
    /* dweights[i] += sum_t G[t] X[t + i];  dbias += sum_t G[t]. */
    void (*add_weights)(int64_t n, int64_t channels, int width, const void *X, const void *G, void *dweights, void *dbias,
                        int64_t ld);
#endif
} attn_convolution_part;

#endif
