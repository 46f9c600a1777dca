/* SPDX-License-Identifier: MIT
 *
 * chunk.h - a part of a kernel: linear attention in chunks of tokens, and its states.
 */
#ifndef ATTN_KERNELS_PART_CHUNK_H
#define ATTN_KERNELS_PART_CHUNK_H

#include "tile.h"

/*
 * Rows of features and states are padded to whole vectors (ld a multiple of lanes), and the padding may hold anything; buffers
 * [tile_q] have one element per lane.
 */
typedef struct attn_chunk_part {
    attn_tile_shape shape;

    /* The products; they prefetch `prefetch` meanwhile.  S[j][lane] = sum_c K[j][c] Xt[c][lane]. */
    void (*pairs)(int width, int64_t n, int64_t dim, const void *Xt, const void *K, int64_t ldk, void *S, attn_prefetch *prefetch);
    /* Ot[d][lane] = (add: +=) sum_j V[j][d] Xt[j][lane] for d < dim, j < n. */
    void (*read)(int width, int64_t n, int64_t dim, const void *Xt, const void *V, int64_t ldv, int add, void *Ot,
                 attn_prefetch *prefetch);
    /* Continues the sums in Ot, in the order of `read`; values are not read where Xt is 0. */
    void (*read_nan_safe)(int width, int64_t n, int64_t dim, const void *Xt, const void *V, int64_t ldv, void *Ot);
    /* St[c][d] += sum_j K[j][c] V[j][d], V in column panels. */
    void (*update_state)(int64_t n, int64_t dim_k, int64_t dim_v, const void *K, int64_t ldk, const void *panels, void *St,
                         int64_t ld, attn_prefetch *prefetch);

    /*
     * S[r][lane] = (S[r][lane] + add_lanes[lane] + add_rows[r]) exp(lane_log[lane] - row_log[r]) where r <= first + lane, else 0;
     * sums[lane] += the new S[r][lane].  reverse: where r >= first + lane, and with the sign of the exponent changed.  Each of
     * add_lanes, add_rows, sums and (both) logs may be NULL.
     */
    void (*apply_decay)(int width, int64_t n, void *S, int64_t first, int reverse, const void *add_lanes, const void *add_rows,
                        const void *lane_log, const void *row_log, void *sums);
    /* Converts rows to the compute type, with ld; returns 1 if all are finite. */
    int (*take_rows)(int64_t n, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, void *dst, int64_t ld);
    /* Column panels of n rows, times weights[j] (NULL: 1): element (j, c) at (c / tile_q)*n*tile_q + j*tile_q + c % tile_q. */
    void (*pack_panels)(int64_t n, int64_t dim, const void *X, int64_t ld, const void *weights, void *panels);
    /* z[c] += sum_j weights[j] X[j][c] (NULL: 1). */
    void (*add_columns)(int64_t n, int64_t dim, const void *X, int64_t ld, const void *weights, void *z);
    /* Ot[c][lane] += z[c] lanes[lane] (NULL: 1). */
    void (*add_lanes)(int width, int64_t dim, const void *z, const void *lanes, void *Ot);
    /* sums[lane] += sum_c z[c] Xt[c][lane]. */
    void (*dot_lanes)(int width, int64_t dim, const void *z, const void *Xt, void *sums);
    /* sums[lane] = sum_c Xt[c][lane] Yt[c][lane]. */
    void (*inner_lanes)(int width, int64_t dim, const void *Xt, const void *Yt, void *sums);
    /* X[c][lane] *= factors[lane]. */
    void (*scale_lanes)(int width, int64_t n, const void *factors, void *X);
    /* A[i][:] *= factors[i] (NULL: 1);  terms[i] = -A[i].O[i] (NULL: skipped). */
    void (*row_terms)(int64_t n, int64_t dim, void *A, int64_t lda, const void *O, int64_t ldo, const void *factors, void *terms);
} attn_chunk_part;

#endif
