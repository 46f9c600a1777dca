/* SPDX-License-Identifier: MIT
 *
 * decode.h - a part of a kernel: decode, that is, few queries and many keys.
 */
#ifndef ATTN_KERNELS_PART_DECODE_H
#define ATTN_KERNELS_PART_DECODE_H

#include "tile.h"

/*
 * Decode in the order of tiles: bit for bit the numbers that the forward parts compute for a query in a tile, with ordered scores
 * (tile.h).  Rows, their lengths and the order of O's channels are those of attn_decode_part below; queries have their channels in
 * natural order.
 */
typedef struct attn_decode_order {
    /* S[i][j] = sum_c Q[i][c] K[j][c], in order.  Rows up to a multiple of 4 exist, and are computed; n >= 1. */
    void (*scores)(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, attn_dtype dtype, int64_t ldk,
                   void *S, int64_t lds, int64_t fetch, int streaming);
    /* One row: S[j] += last[-j]. */
    void (*add_diagonals_row)(int64_t n, void *S, const void *last);
    /* m and l of each row, ld numbers apart, absorb n scores, which become weights up to a multiple of lanes; factors[i] is the
     * factor for the earlier O. */
    void (*absorb_rows)(int64_t rows, int64_t n, void *S, int64_t lds, void *m, void *l, int64_t ld, void *factors);
    /* One row: O = factor O + sum. */
    void (*join_row)(int64_t dim_v, const void *factor, const void *sum, void *O);
    /* One row: m, l and O absorb the state of other keys. */
    void (*merge_row)(int64_t dim_v, const void *m_other, const void *l_other, const void *O_other, void *m, void *l, void *O);
    /* One row: o and lse (NULL: skipped) from m, l and O.  scratch: T[2 * (dim_v rounded up to lanes)]. */
    void (*normalise_row)(int64_t dim_v, const void *m, const void *l, const void *O, attn_dtype order, void *scratch, void *o,
                          attn_dtype dtype, void *lse);
} attn_decode_order;

/*
 * The steps of decode: few queries, many keys.  Rows stay rows of length ldq, lds or ldo, multiples of lanes and at least as long
 * as their contents; channels lie in the lanes, and keys and values are read in place, in their storage type (f32, f16, bf16 or i8;
 * f64).  If a storage type is read as even and odd channels, rows combined with it have that order (`order` names the type).
 *
 *      Q [rows][ldq]     queries, scaled
 *      S [rows][lds]     scores of n keys, which exponentiate_row turns into unnormalised weights
 *      O [rows][ldo]     output accumulator
 *
 * A row's result depends on its query, its keys and their places in the block, not on other rows: a score sums the channels in the
 * same tree everywhere, and O is one chain of fused multiply-adds over the keys, wherever calls divide it.  `fetch` and `streaming`
 * are prefetch hints: what lies `fetch` bytes after each key or value will be read soon; streaming is 1 if it comes from memory.
 */
typedef struct attn_decode_part {
    attn_tile_shape shape;

    /* Keys in a block, a multiple of lanes: depends only on the sizes. */
    int64_t (*block_kv)(int64_t dim_qk, int64_t dim_v);
    /* Q[i][c] = (T)scale * q[i][c], rounded once in T. */
    void (*pack_rows)(int64_t rows, int64_t dim, const void *q, attn_dtype dtype, int64_t stride, double scale, attn_dtype order,
                      void *Q, int64_t ldq);
    /* Copies n rows of so many bytes, which lie anywhere, to where one follows the other. */
    void (*gather_rows)(int64_t n, const char *const *rows, int64_t bytes, char *to);
    /* S[i][j] = sum_c Q[i][c] K[j][c].  Rows up to a multiple of 4 exist, and are computed; n >= 1. */
    void (*dots)(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, attn_dtype dtype, int64_t ldk,
                 void *S, int64_t lds, int64_t fetch, int streaming);

    /* One row of scores, function by function: S *= factors, one per key; keep low <= j < high; drop where mask[j*stride] is 0; S
     * += bias[j*stride], rounded once, where -infinity drops; S = cap * tanh(S / cap); S -= slope * |first - j|. */
    void (*scale_row)(int64_t n, void *S, const void *factors);
    void (*drop_outside)(int64_t n, void *S, int64_t low, int64_t high);
    void (*keep_row)(int64_t n, void *S, const void *mask, int64_t stride);
    void (*bias_row)(int64_t n, void *S, const void *bias, attn_dtype dtype, int64_t stride);
    void (*softcap_row)(int64_t n, void *S, double cap);
    void (*alibi_row)(int64_t n, void *S, double slope, int64_t first);

    /* m = max_j S_j, or the lowest finite number if every key is dropped;  S = exp(S - m);  l = sum_j S_j.  Writes scores up to a
     * multiple of lanes, those past n as 0. */
    void (*exponentiate_row)(int64_t n, void *S, void *m, void *l);
    /* O[i][c] += sum_j P[i][j] V[j][c].  Rows as in dots. */
    void (*add_values)(int64_t rows, int64_t n, int64_t dim_v, const void *P, int64_t ldp, const void *V, attn_dtype dtype,
                       int64_t ldv, void *O, int64_t ldo, int64_t fetch, int streaming);
    /* The same for one row, but a key whose score S is -infinity contributes nothing, even if its value is NaN or infinite. */
    void (*add_values_nan_safe)(int64_t n, int64_t dim_v, const void *S, const void *P, const void *V, attn_dtype dtype,
                                int64_t ldv, void *O);
    /* 1 if O, one row, contains NaN or an infinity. */
    int (*row_not_finite)(int64_t dim_v, const void *O);

    /*
     * One row from the states of its parts: m and l have `parts` numbers, O has parts ldo elements apart.  With M the largest m (of
     * parts with l != 0, and the sink unless that is -infinity), f_p = exp(m_p - M) and L = sum_p f_p l_p + exp(sink - M),
     *
     *      o = (sum_p f_p O_p) / L, rounded once to dtype, or 0 where L is 0      lse = M + log L, or -infinity     (NULL: skipped)
     *
     * with each sum in ascending order.  m is overwritten.  scratch: T[2 * (dim_v rounded up to lanes)].
     */
    void (*finish_row)(int64_t parts, int64_t dim_v, void *m, const void *l, const void *O, int64_t ldo, attn_dtype order,
                       double sink, void *scratch, void *o, attn_dtype dtype, void *lse);

    attn_decode_order order;
} attn_decode_part;

#endif
