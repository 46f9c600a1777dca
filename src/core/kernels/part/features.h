/* SPDX-License-Identifier: MIT
 *
 * features.h - a part of a kernel: the feature maps of linear attention.
 */
#ifndef ATTN_KERNELS_PART_FEATURES_H
#define ATTN_KERNELS_PART_FEATURES_H

#include "tile.h"

/* Rows of features are padded to whole vectors (ld a multiple of lanes), and the padding may hold anything.  A kind is an
 * attn_features of attn/linear.h, which the other kernels do without. */
typedef struct attn_features_part {
    attn_tile_shape shape;

    /* X = f(X) for n rows, in place, for every map that is neither random nor the identity. */
    void (*map)(int kind, int64_t n, int64_t dim, void *X, int64_t ld);
    /* The same in a tile, Xt [dim][tile_q], for the elementwise maps (ELU+1, ReLU). */
    void (*map_lanes)(int kind, int width, int64_t dim, void *Xt);
    /* U[j][m] = omega_m.x_j becomes the features (twice `count` for cosines and sines). */
    void (*random)(int kind, int64_t n, int64_t dim, int64_t count, const void *X, int64_t ldx, void *U, int64_t ldu);
#ifndef ATTN_INFERENCE_ONLY /* base/inference.h */
    /* G = f'(x)^T G, from F = f(x). */
    void (*map_backward)(int kind, int64_t n, int64_t dim, const void *F, void *G, int64_t ld);
    /* G, the gradient of features F, becomes that of omega_m.x_j, m < count; sums[j] = the factor of x_j itself in its gradient. */
    void (*random_backward)(int kind, int64_t n, int64_t count, const void *F, void *G, int64_t ld, void *sums);
#endif
} attn_features_part;

#endif
