/* SPDX-License-Identifier: MIT
 *
 * storage.h - a part of a kernel: conversions between rows of the caller's tensors and tile buffers.
 */
#ifndef ATTN_KERNELS_PART_STORAGE_H
#define ATTN_KERNELS_PART_STORAGE_H

#include "tile.h"

typedef struct attn_storage_part {
    attn_tile_shape shape;

    /* Qt[c][lane] = (T)scale * q[min(lane, rows-1)][c], rounded once in T.  q: rows of `dtype` at `stride`. */
    void (*pack_query)(int width, int64_t rows, int64_t dim, const void *q, attn_dtype dtype, int64_t stride, double scale,
                       void *Qt);

    /* dst[i*ld + c] = (T)src[i*stride + c] for n rows: copies narrow or badly strided keys and values into compact rows of T.  Of
     * blocks, whose rows are `stride` blocks apart, it writes the channels. */
    void (*load_rows)(int64_t n, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, void *dst, int64_t ld);
    /* X[i*ld + c] *= factors[i*stride] for n rows: dequantises i8 and f8. */
    void (*scale_rows)(int64_t n, int64_t dim, const void *factors, int64_t stride, void *X, int64_t ld);

    /* dst[j*stride + c] = factor * src[j*ld + c] for n rows, rounded once to dtype; ld is a multiple of lanes. */
    void (*store_rows)(int64_t n, int64_t dim, double factor, const void *src, int64_t ld, void *dst, attn_dtype dtype,
                       int64_t stride);
    /* dst[i*stride + j] = factor * X[j][i] for `rows` lanes i and n rows j of a tile buffer; rounded once to dtype. */
    void (*store_columns)(int width, int64_t rows, int64_t n, double factor, const void *X, void *dst, attn_dtype dtype,
                          int64_t stride);
} attn_storage_part;

#endif
