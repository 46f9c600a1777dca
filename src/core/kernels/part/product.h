/* SPDX-License-Identifier: MIT
 *
 * product.h - a part of a kernel: the two products of a tile, S = K Q^T and O^T = V^T P.
 */
#ifndef ATTN_KERNELS_PART_PRODUCT_H
#define ATTN_KERNELS_PART_PRODUCT_H

#include "tile.h"

typedef struct attn_product_part {
    attn_tile_shape shape;

    /* Keys in a block for these head sizes: depends only on the sizes, since results depend on it. */
    int64_t (*block_kv)(int64_t dim_qk, int64_t dim_v);

    /* S[j][lane] = sum_c K[j][c] * Qt[c][lane], and block_max[lane] = max_j S[j][lane] (a NaN score may or may not enter).  n >= 1;
     * dim may be 0.  `next`: n rows of next_ld that the caller will read soon (the block's values), a prefetch hint, never NULL,
     * never dereferenced. */
    void (*score)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                  const void *next, int64_t next_ld);

    /* The same with one more prefetch hint: data that the next steps read once, from memory (a bias, a mask). */
    void (*score_beside)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                         const void *next, int64_t next_ld, const attn_prefetch_hint *beside);

    /* As score, but each lane keeps only the keys low[lane] <= j < high[lane], 0 <= low <= high <= n, neither of which decreases
     * from lane to lane: S is -infinity outside, which block_max ignores, and scores that no lane of a vector keeps are not
     * computed.  low and high have width*lanes entries; lanes past rows repeat the last real one. */
    void (*score_seen)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                       const int32_t *low, const int32_t *high, const void *next, int64_t next_ld);

    /* Both with ordered scores, an order that decode can have too (tile.h). */
    void (*score_beside_in_order)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                                  void *block_max, const void *next, int64_t next_ld, const attn_prefetch_hint *beside);
    void (*score_seen_in_order)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S,
                                void *block_max, const int32_t *low, const int32_t *high, const void *next, int64_t next_ld);

    /*
     * Ot[c][lane] = factor[lane] Ot[c][lane] + sum_j P[j][lane] V[j][c] over n keys, rounded once: the sum is a chain of its own.
     * factor: T[tile_q], aligned like a tile buffer; NULL: 1.  `next` as in score.
     */
    void (*values)(int width, int64_t n, int64_t dim_v, const void *P, const void *V, int64_t ldv, const void *factor, void *Ot,
                   const void *next, int64_t next_ld);
    /* The same if P is 0 outside low .. high-1 (as in score_seen): values there may be left out, or multiplied by 0. */
    void (*values_seen)(int width, int64_t n, int64_t dim_v, const void *P, const void *V, int64_t ldv, const void *factor,
                        void *Ot, const int32_t *low, const int32_t *high, const void *next, int64_t next_ld);
    /* As values, with the same bits where that is finite, but a dropped key contributes nothing even if its value is NaN or
     * infinite (0 * NaN in values).  Dropped is a key whose score, before it became P, is -infinity, or, with drops, whose P is 0.
     * Slow: the scheduler repeats a tile with it if Ot is not finite and keys were dropped inside visited blocks. */
    void (*values_nan_safe)(int width, int64_t n, int64_t dim_v, const void *P, const void *scores, int drops, const void *V,
                            int64_t ldv, const void *factor, void *Ot);

    /* Ot[c][lane] += sum_j S[j][lane] V[j][c].  nan_safe: V is not read where S is 0. */
    void (*add_values)(int width, int64_t n, int64_t dim, const void *S, const void *V, int64_t ldv, void *Ot);
    void (*add_values_nan_safe)(int width, int64_t n, int64_t dim, const void *S, const void *V, int64_t ldv, void *Ot);
} attn_product_part;

#endif
