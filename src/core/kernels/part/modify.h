/* SPDX-License-Identifier: MIT
 *
 * modify.h - a part of a kernel: what is done to scores before they are weighed.
 */
#ifndef ATTN_KERNELS_PART_MODIFY_H
#define ATTN_KERNELS_PART_MODIFY_H

#include "tile.h"

typedef struct attn_modify_part {
    attn_tile_shape shape;

    /* The modifiers.  A dropped score becomes exactly -infinity, whatever it was (NaN too).  They bring block_max up to date, all
     * but keep_range.  Lanes past rows go on repeating the last real query. */

    /* Keeps S[j][lane] iff low[lane] <= j < high[lane]; 0 <= low, high <= n.  Causal, window and lengths all come as this.
     * low and high have width*lanes entries; lanes past rows repeat the last real one. */
    void (*keep_range)(int width, int64_t n, void *S, const int32_t *low, const int32_t *high);
    /* Drops S[j][lane] where low[lane] <= j < high[lane], as above. */
    void (*drop_range)(int width, int64_t n, void *S, void *block_max, const int32_t *low, const int32_t *high);
    /* Drops where the byte is 0.  scratch: T[tile_q * (n rounded up to lanes)]. */
    void (*keep_mask)(int width, int64_t rows, int64_t n, void *S, void *block_max, const attn_block *mask, void *scratch);
    /* S += bias, one rounding; -infinity drops.  scratch as above. */
    void (*add_bias)(int width, int64_t rows, int64_t n, void *S, void *block_max, const attn_block *bias, void *scratch);
    /* S = cap * tanh(S / cap).  slope, bend: NULL, or buffers like S for the derivatives, 1 - tanh^2 and the second one. */
    void (*softcap)(int width, int64_t n, void *S, void *block_max, double cap, void *slope, void *bend);
    /* S -= slope * |first + i - j|: lane i stands at first + i when key j of the block stands at j. */
    void (*add_alibi)(int width, int64_t rows, int64_t n, void *S, void *block_max, double slope, double first);
    /* S[j][lane] += strip[lane + n-1 - j], a table by distance, with n + width*lanes - 1 elements;  block_max[lane] = max_j
     * S[j][lane]. The strip goes on where lanes past rows read it. */
    void (*add_diagonals)(int width, int64_t n, void *S, const void *strip, void *block_max);

    /* S = 0 in the lanes where empty is 1. */
    void (*unmask_empty)(int width, int64_t n, void *S, const int32_t *empty);
    /* block_max[lane] = max_j S[j][lane]. */
    void (*block_max)(int width, int64_t n, const void *S, void *block_max);
} attn_modify_part;

#endif
