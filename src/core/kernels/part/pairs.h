/* SPDX-License-Identifier: MIT
 *
 * pairs.h - parts of a kernel that few instruction sets have: scores from bf16 without conversion, in a tile and in decode.
 */
#ifndef ATTN_KERNELS_PART_PAIRS_H
#define ATTN_KERNELS_PART_PAIRS_H

#include "tile.h"

/*
 * Scores of queries and keys that are stored in bf16, without conversion: products of two channels at a time are added to sums in
 * f32 (vdpbf16ps), each rounded to nearest even, the odd channel's first.  Such a product is exact, so a score is a chain of fused
 * multiply-adds as usual, except that numbers below the smallest normal one, both inputs and sums, count as 0.
 *
 * Qt and rows of keys consist of 32-bit pairs: channels 2p and 2p+1, the even one in the lower half, and 0 past the last channel.
 * A tile has attn_bf16_pairs(dim) rows of them, a key as many pairs, and keys follow each other without gaps.
 */
typedef struct attn_pairs_part {
    attn_tile_shape shape;

    /* Qt[p][lane] = channels 2p and 2p+1 of q[min(lane, rows-1)]; not scaled. */
    void (*pack_query)(int width, int64_t rows, int64_t dim, const void *q, int64_t stride, void *Qt);
    /* dst[i][p] = channels 2p and 2p+1 of src[i*stride]. */
    void (*load_rows)(int64_t n, int64_t dim, const void *src, int64_t stride, void *dst);
    /* S[j][lane] = (T)scale * sum_c K[j][c] Qt[c][lane], rounded once more; the rest as in score_beside and score_seen of
     * attn_product_part. */
    void (*score)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S, void *block_max,
                  const void *next, int64_t next_ld, const attn_prefetch_hint *beside);
    void (*score_seen)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S, void *block_max,
                       const int32_t *low, const int32_t *high, const void *next, int64_t next_ld);
    /* Both with ordered scores: chains over pairs p instead of channels (tile.h). */
    void (*score_in_order)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S, void *block_max,
                           const void *next, int64_t next_ld, const attn_prefetch_hint *beside);
    void (*score_seen_in_order)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S,
                                void *block_max, const int32_t *low, const int32_t *high, const void *next, int64_t next_ld);
} attn_pairs_part;

static inline int64_t attn_bf16_pairs(int64_t dim) { return dim / 2 + dim % 2; }

/* Scores as in attn_pairs_part; a row of a query is attn_bf16_pairs(dim) pairs. */
typedef struct attn_decode_pairs_part {
    attn_tile_shape shape;

    /* Q[i] = the pairs of q[i], not scaled. */
    void (*pack_rows)(int64_t rows, int64_t dim, const void *q, int64_t stride, void *Q, int64_t ldq);
    /* S[i][j] = sum_c Q[i][c] K[j][c], as in dots of attn_decode_part. */
    void (*dots)(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, int64_t ldk, void *S, int64_t lds,
                 int64_t fetch, int streaming);
    /* The same in the order of attn_pairs_part, as in scores of attn_decode_order. */
    void (*ordered_scores)(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, int64_t ldk, void *S,
                           int64_t lds, int64_t fetch, int streaming);
    /* One row: S *= (T)scale, rounded once more. */
    void (*scale_row)(int64_t n, void *S, double scale);
} attn_decode_pairs_part;

#endif
