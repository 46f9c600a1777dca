/* SPDX-License-Identifier: MIT
 *
 * channels.h - a part of a kernel in f32: groups of ATTN_BLOCK keys that are quantised by channel (attn_dtype).  `group` is the
 * place of a group's first key, `stride` the blocks from one key's place to the next.
 */
#ifndef ATTN_KERNELS_PART_CHANNELS_H
#define ATTN_KERNELS_PART_CHANNELS_H

#include "tile.h"

typedef struct attn_channels_part {
    attn_tile_shape shape;

    /* X[i*ld + c] = channel c of key first + i, for n keys of the group. */
    void (*load)(int64_t first, int64_t n, int64_t dim, const void *group, int64_t stride, void *X, int64_t ld);
    /* S[i*lds + j] = sum_c Q[i][c] K[first + j][c], one chain over the channels.  Rows of Q up to a multiple of 4 exist, and are
     * computed. */
    void (*dots)(int64_t rows, int64_t first, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *group, int64_t stride,
                 void *S, int64_t lds);
} attn_channels_part;

#endif
