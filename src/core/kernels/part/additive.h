/* SPDX-License-Identifier: MIT
 *
 * additive.h - parts of a kernel: additive scores, and their gradients.
 */
#ifndef ATTN_KERNELS_PART_ADDITIVE_H
#define ATTN_KERNELS_PART_ADDITIVE_H

#include "tile.h"

/*
 * The steps of additive scores, s = scale sum_a w_a tanh(x_a + y_a) over `hidden` units a, from exponentials that are made once
 * (additive_step.inc.c).  What stands for queries, keys and weights:
 *
 *      Qt [3 hidden + 1][tile_q]      x, exp(2 x), 2 w exp(2 x), and 1 where all of the query is small enough for that, else 0
 *      K  rows of 2 hidden + 1        y, exp(-2 y), and 1 or 0 likewise
 *      w  [2 hidden + 2]              weights over a power of two next to the largest, biases, the sum of the former, the power
 *
 * A score depends on its query, its key and w alone, and gradients of what dS has 0 for are 0 even where a key is NaN.
 */
typedef struct attn_additive_part {
    attn_tile_shape shape;

    /* Qt has the queries in its first rows, as pack_query left them: adds the biases and makes the rest. */
    void (*prepare_queries)(int width, int64_t hidden, const void *w, void *Qt);
    /* n rows of K have the keys: makes the rest. */
    void (*prepare_keys)(int64_t n, int64_t hidden, void *K, int64_t ldk);
    /* S and block_max as in score and score_seen below. */
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
