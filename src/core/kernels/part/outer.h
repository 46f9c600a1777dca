/* SPDX-License-Identifier: MIT
 *
 * outer.h - a part of a kernel: products over the queries of a tile, for dK and dV.
 */
#ifndef ATTN_KERNELS_PART_OUTER_H
#define ATTN_KERNELS_PART_OUTER_H

#include "tile.h"

/*
 * Column panels hold a tile's rows untransposed: element (i, c) at (c / tile_q)*tile_q^2 + i*tile_q + c % tile_q, with zeros past
 * the last column.  Everything is accumulated in T.
 */
typedef struct attn_outer_part {
    attn_tile_shape shape;

    /* Packs rows of a tile, times scale, into column panels.  Returns 1 if everything it wrote is finite. */
    int (*pack_rows)(int64_t rows, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, double scale, void *panels);
    /* 1 if an element is NaN or infinite. */
    int (*rows_not_finite)(int64_t n, int64_t dim, const void *K, int64_t ldk);

    /* C[j][c] += sum_i A[j][i] B[i][c] over `rows` queries, for n keys: A like S, B in column panels, C with rows of ldc, a
     * multiple of lanes and at least dim rounded up to lanes.  nan_safe: B is not read where A is 0. */
    void (*add_outer)(int64_t n, int64_t rows, int64_t dim, const void *A, const void *panels, void *C, int64_t ldc,
                      attn_prefetch *prefetch);
    void (*add_outer_nan_safe)(int64_t n, int64_t rows, int64_t dim, const void *A, const void *panels, void *C, int64_t ldc,
                               attn_prefetch *prefetch);

    /* dst[i] += src[i]. */
    void (*add)(int64_t count, const void *src, void *dst);
} attn_outer_part;

#endif
