/* SPDX-License-Identifier: MIT
 *
 * modify.h - a part of a kernel: modifies scores before the softmax.
 */
#ifndef ATTN_KERNELS_PART_MODIFY_H
#define ATTN_KERNELS_PART_MODIFY_H

#include "tile.h"

typedef struct attn_modify_part {
    attn_tile_shape shape;

    /* The modifiers.  A dropped score becomes exactly -infinity, whatever it was (NaN too).  All but keep_range update block_max.
     * Lanes past rows keep repeating the last real query. */

    /* Keeps S[j][lane] iff low[lane] <= j < high[lane]; 0 <= low, high <= n.  Causal masks, windows and lengths all take this form.
     * low and high have width*lanes entries; lanes past rows repeat the last real one. */
    void (*keep_range)(int width, int64_t n, void *S, const int32_t *low, const int32_t *high);
    /* Drops S[j][lane] where low[lane] <= j < high[lane], as above. */
    void (*drop_range)(int width, int64_t n, void *S, void *block_max, const int32_t *low, const int32_t *high);
    /* Drops where the byte is 0.  scratch: T[tile_q * (n rounded up to lanes)]. */
    void (*keep_mask)(int width, int64_t rows, int64_t n, void *S, void *block_max, const attn_block *mask, void *scratch);
    /* S += bias, rounded once; -infinity drops.  scratch as above. */
    void (*add_bias)(int width, int64_t rows, int64_t n, void *S, void *block_max, const attn_block *bias, void *scratch);
    /* S = cap * tanh(S / cap).  slope, curvature: NULL, or buffers like S for the first derivative, 1 - tanh^2, and the second. */
    void (*softcap)(int width, int64_t n, void *S, void *block_max, double cap, void *slope, void *curvature);
    /* S -= slope * |first + i - j|: lane i is at position first + i if key j of the block is at j. */
    void (*add_alibi)(int width, int64_t rows, int64_t n, void *S, void *block_max, double slope, int64_t first);
    /* S[j][lane] += diagonals[lane + n-1 - j], a table by distance, with n + width*lanes - 1 elements, also for lanes past rows;
     * block_max[lane] = max_j S[j][lane]. */
    void (*add_diagonals)(int width, int64_t n, void *S, const void *diagonals, void *block_max);

    /* S = 0 in the lanes where empty is 1. */
    void (*unmask_empty)(int width, int64_t n, void *S, const int32_t *empty);
    /* block_max[lane] = max_j S[j][lane]. */
    void (*block_max)(int width, int64_t n, const void *S, void *block_max);
} attn_modify_part;

#endif
