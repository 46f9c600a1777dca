/* SPDX-License-Identifier: MIT
 *
 * outputs.h - a part of a kernel: outputs other than O.
 */
#ifndef ATTN_KERNELS_PART_OUTPUTS_H
#define ATTN_KERNELS_PART_OUTPUTS_H

#include "tile.h"

/*
 * The steps of the second pass over a tile's blocks, for outputs other than O: S are scores after the modifiers, m and l those of
 * the tile's finished rows.
 */
typedef struct attn_outputs_part {
    attn_tile_shape shape;

    /* S = exp(S - m) / l: the weights; 0 where S is -infinity, and where l is 0. */
    void (*normalise)(int width, int64_t n, void *S, const void *m, const void *l);
    /* W = keep * W where drop keeps it, else 0. */
    void (*drop_weights)(int width, int64_t n, void *W, const attn_drop *drop, double keep);
    /* most = max(most, block_max), which a NaN may or may not enter. */
    void (*keep_max)(int width, const void *block_max, void *most);
    /* sums[lane] += sum_j p_j and sums[tile_q + lane] += sum_j p_j (S[j][lane] - m), with p_j = exp(S[j][lane] - m). */
    void (*add_entropy)(int width, int64_t n, const void *S, const void *m, double *sums);
    /* Keys first .. first+n-1 enter the k best of each lane: top [k][tile_q] of T and index [k][tile_q], by descending weight, and
     * by ascending key among equals.  An unused entry has weight -1.  Dropped keys and NaN weights stay out. */
    void (*take_top)(int width, int64_t rows, int64_t n, const void *S, const void *m, const void *l, int64_t first, int64_t k,
                     void *top, int64_t *index);
    /* sums[j] += sum over lanes first .. end-1 of W[j][lane]. */
    void (*sum_columns)(int width, int64_t first, int64_t end, int64_t n, const void *W, double *sums);
    /* keep[i*stride + j] = 1 where drop keeps query i and key j of its tile, else 0, for its rows and n keys. */
    void (*store_keep)(int64_t n, const attn_drop *drop, unsigned char *keep, int64_t stride);
} attn_outputs_part;

#endif
