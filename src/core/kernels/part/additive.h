/* SPDX-License-Identifier: MIT
 *
 * additive.h - parts of a kernel: additive scores, and their gradients.
 */
#ifndef ATTN_KERNELS_PART_ADDITIVE_H
#define ATTN_KERNELS_PART_ADDITIVE_H

#include "tile.h"

/*
 * The steps of additive scores, s = scale sum_a w_a tanh(x_a + y_a) over `hidden` units a, from exponentials that are computed once
 * (additive_step.inc.c).  Queries, keys and weights are stored as
 *
 *      Qt [3 hidden + 1][tile_q]      x, exp(2 x), 2 w exp(2 x), and 1 if the whole query is small enough for that, else 0
 *      K  rows of 2 hidden + 1        y, exp(-2 y), and 1 or 0 likewise
 *      w  [2 hidden + 2]              weights over a power of two next to the largest, biases, the sum of these weights, the power
 *
 * A score depends only on its query, its key and w; where dS is 0, gradients are 0 even if a key is NaN.
 */
typedef struct attn_additive_part {
    attn_tile_shape shape;

    /* Qt has the queries in its first rows, as packed by pack_query: adds the biases and computes the rest. */
    void (*prepare_queries)(int width, int64_t hidden, const void *w, void *Qt);
    /* n rows of K have the keys: computes the rest. */
    void (*prepare_keys)(int64_t n, int64_t hidden, void *K, int64_t ldk);
    /* S and block_max as in score and score_seen of attn_product_part. */
    void (*score)(int width, int64_t n, int64_t hidden, const void *Qt, const void *K, int64_t ldk, const void *w, double scale,
                  void *S, void *block_max);
    void (*score_seen)(int width, int64_t n, int64_t hidden, const void *Qt, const void *K, int64_t ldk, const void *w,
                       double scale, void *S, void *block_max, const int32_t *low, const int32_t *high);
} attn_additive_part;

/* The gradients of these scores. */
typedef struct attn_additive_gradient_part {
    attn_tile_shape shape;

    /*
     * With t_ija = tanh(x_ia + y_ja) and t' its derivative, over `rows` queries and n keys,
     *
     *      dQt[a][i] += sum_j dS_ij t' / 4      dK[j][a] += scale w_a sum_i dS_ij t'
     *      dw[a] += sum_ij dS_ij t              (NULL: skipped)
     *
     * dS is cleared in the lanes past rows.
     */
    void (*add)(int width, int64_t rows, int64_t n, int64_t hidden, const void *Qt, const void *K, int64_t ldk, const void *w,
                double scale, void *dS, void *dQt, void *dK, int64_t lddk, double *dw);
    /* dQt[a] *= 4 w_a, and db[a] += the sum of its rows (NULL: skipped). */
    void (*finish)(int width, int64_t rows, int64_t hidden, const void *w, void *dQt, double *db);
} attn_additive_gradient_part;

static inline int64_t attn_additive_rows(int64_t hidden) { return 3 * hidden + 1; }
static inline int64_t attn_additive_key(int64_t hidden) { return 2 * hidden + 1; }
static inline int64_t attn_additive_weights(int64_t hidden) { return 2 * hidden + 2; }

#endif
