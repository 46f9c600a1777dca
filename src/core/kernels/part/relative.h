/* SPDX-License-Identifier: MIT
 *
 * relative.h - a part of a kernel: score terms that depend on distance, and their gradients.
 */
#ifndef ATTN_KERNELS_PART_RELATIVE_H
#define ATTN_KERNELS_PART_RELATIVE_H

#include "tile.h"

typedef struct attn_relative_part {
    attn_tile_shape shape;

    /* Relative terms.  G [n + width*lanes - 1][tile_q] is a band: row i + n-1 - j has the term of lane i and key j.  The sums raise
     * block_max, which must not include these n rows before. */

    /* S[j][i] += G[i + n-1 - j][i]. */
    void (*add_relative_shift)(int width, int64_t n, const void *G, void *S, void *block_max);
    /* G[i + n-1 - j][i] = S[j][i], and 0 elsewhere. */
    void (*relative_shift)(int width, int64_t n, const void *S, void *G);
    /* S[j][i] += lanes[i]. */
    void (*add_to_lanes)(int width, int64_t n, void *S, const void *lanes, void *block_max);
    /* sums[i] = sum_j S[j][i]. */
    void (*sum_keys)(int width, int64_t n, const void *S, void *sums);
} attn_relative_part;

#endif
