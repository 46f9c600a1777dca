/* SPDX-License-Identifier: MIT
 *
 * fixed_point.h - a part of a kernel that few instruction sets have: decode over i8 keys and values, and keys of blocks, in
 * integers.
 */
#ifndef ATTN_KERNELS_PART_FIXED_POINT_H
#define ATTN_KERNELS_PART_FIXED_POINT_H

#include "tile.h"

/*
 * Keys and values of i8 are used as integers: a row X of queries or weights becomes unit (65536 d2 + 256 d1 + d0), where unit is a
 * power of 2 chosen by the row's largest element and d are its limbs of 8 bits, so that products and sums of limbs are exact in 32
 * bits and blocks may be cut anywhere.  A fixed-point row is ldd = ATTN_FIXED_POINT_BYTES bytes, aligned to 16; ldd is the same for
 * all rows, and weights are converted for the whole block.
 */
enum { ATTN_FIXED_POINT_LIMBS = 3, ATTN_FIXED_POINT_HEAD = 64, ATTN_MAX_FIXED_POINT_CHANNELS = 1 << 15 };
#define ATTN_FIXED_POINT_PLANE(n) (((int64_t)(n) + 3 + 63) / 64 * 64)
#define ATTN_FIXED_POINT_BYTES(n)                                                                                                  \
    (ATTN_FIXED_POINT_HEAD + ATTN_FIXED_POINT_LIMBS * ATTN_FIXED_POINT_PLANE(n) + ((int64_t)(n) + 511) / 512 * 64)
#define ATTN_FIXED_POINT_SUMS(dim_v) (ATTN_FIXED_POINT_LIMBS * (((int64_t)(dim_v) + 63) / 64 * 64))

typedef struct attn_fixed_point_part {
    attn_tile_shape shape;

    /* One row of scaled queries or of weights; returns 0 if it cannot be converted: NaN, infinite, nearly 0 throughout, or a
     * negative weight. */
    int (*convert_query)(int64_t dim, const void *Q, void *fixed);
    int (*convert_weights)(int64_t n, const void *P, void *fixed, int64_t ldd);
    /* S[i][j] = sum_c Q[i][c] K[j][c].  Rows up to a multiple of 4 exist, and are computed; n >= 1. */
    void (*dots)(int64_t rows, int64_t n, int64_t dim, const void *fixed, int64_t ldd, const void *K, int64_t ldk, void *S,
                 int64_t lds, int64_t fetch);
    /* The same for keys of blocks, ldk blocks apart; dim is a multiple of ATTN_BLOCK. */
    void (*block_dots)(int64_t rows, int64_t n, int64_t dim, const void *fixed, int64_t ldd, const void *K, attn_dtype dtype,
                       int64_t ldk, void *S, int64_t lds, int64_t fetch);
    /* O[i][c] += sum_j P[i][j] V[j][c] for values of blocks, in f32: the bits of attn_decode_part's add_values over their numbers.
     */
    void (*block_values)(int64_t rows, int64_t n, int64_t dim_v, const void *P, int64_t ldp, const void *V, attn_dtype dtype,
                         int64_t ldv, void *O, int64_t ldo, int64_t fetch);
    /* sums += products of the weights of keys first .. first + n-1 and n values: int32_t[rows][ATTN_FIXED_POINT_SUMS(dim_v)]. */
    void (*add_values)(int64_t rows, int64_t n, int64_t dim_v, const void *fixed, int64_t ldd, int64_t first, const void *V,
                       int64_t ldv, void *sums, int64_t fetch);
    /* One row of O, ldo elements, from its sums. */
    void (*output)(int64_t dim_v, const void *fixed, const void *sums, void *O, int64_t ldo);
} attn_fixed_point_part;

#endif
