/* SPDX-License-Identifier: MIT
 *
 * kernel.h - the contract between the scheduler and the kernels.  Whoever adds an instruction set needs no other file.
 *
 * A kernel is a table of functions for one operation, one compute type T (float or double) and one instruction set.  It is
 * one line in kernels.def and one object with the same name as its file and its symbol.
 *
 * All but decode and short heads work on a tile of queries in the transposed form: queries lie in the lanes of vectors, so that
 * maxima, sums, rescaling and masks are vertical, and keys and values are read by broadcast from their natural rows.
 *
 *      lane       0 .. tile_q-1, one query each.  tile_q = lanes * vectors is the row length of every tile buffer
 *      width      how many vectors of the tile are in use, 1 .. vectors.  Lanes past width*lanes are neither read nor written
 *      rows       how many queries are real, 1 .. width*lanes.  Lanes rows .. width*lanes-1 repeat the last real query: they are
 *                 computed and never stored, so they need no masks
 *
 *      Qt [dim_qk][tile_q]    queries, scaled, transposed
 *      S  [n][tile_q]         scores of n keys; fold turns them into unnormalised weights
 *      Ot [dim_v][tile_q]     output accumulator, transposed
 *      m, l, block_max, ... [tile_q]
 *
 * Tile buffers are 64-byte aligned.  Keys, values and every caller's tensor are aligned to their element only.
 *
 * Same bits: what a lane computes depends on its query and its keys, not on width, rows, n's position in the walk or the other
 * lanes.  So a score is one chain of fused multiply-adds over the channels in ascending order, starting at 0; a block's part of
 * O is one such chain over its keys; l gets the sum of a block in ascending key order.
 *
 * Kernels cannot fail, allocate nothing, and write what their comment names and nothing else.
 */
#ifndef ATTN_KERNELS_KERNEL_H
#define ATTN_KERNELS_KERNEL_H

#include <stdint.h>

#include "attn/attn.h"
#include "attn/linear.h"

enum { ATTN_LINE = 64, ATTN_PAGE = 4096 }; /* bytes that come at once, and that lie together, as far as prefetching goes */

/* A block of a caller's mask or bias: element (i, j) of the tile at base + (i*stride_q + j*stride_k) elements. */
typedef struct attn_block {
    const void *base;
    attn_dtype dtype;
    int64_t stride_q;
    int64_t stride_k;
} attn_block;

/* What will be read soon: rows of `bytes` bytes, `stride` bytes apart. */
typedef struct attn_coming {
    const void *base;
    int64_t rows, bytes, stride;
} attn_coming;

/* Which weights dropout drops: those whose word of Philox4x32-10 with key = seed and counter = (offset, head, query, key/4) is
 * below the threshold; or those where the caller's mask has 0. */
typedef struct attn_drop {
    attn_block given; /* base NULL: drawn */
    uint64_t seed;
    uint32_t offset;
    uint32_t head;      /* b * heads_q + h */
    uint64_t threshold; /* 0 .. 2^32 */
    int64_t first_q;    /* query of lane 0 */
    int64_t rows;
    int64_t first_kv; /* key of row 0 */
} attn_drop;

/*
 * Memory that the caller will use soon, in rows: a product that runs long asks for a few lines of it now and then.  Addresses are
 * integers, since they are hints that may lie past an array.
 */
enum { ATTN_MOST_SOON = 8 };
typedef struct attn_soon {
    struct attn_soon_rows {
        uintptr_t at;
        int64_t rows, bytes, stride; /* stride in bytes */
    } list[ATTN_MOST_SOON];
    int count, next; /* of the list */
    int begun;
    int64_t byte; /* of the row at hand */
} attn_soon;

/*
 * The steps of the second walk over a tile's blocks, for outputs beside O: with scores S as the modifiers left them, and the
 * finished m and l of the tile's rows.
 */
typedef struct attn_out_kernel {
    /* S = exp(S - m) / l: the weights; 0 where S is -infinity, and where l is 0. */
    void (*weigh)(int width, int64_t n, void *S, const void *m, const void *l);
    /* W = keep * W where drop keeps it, else 0. */
    void (*drop_weights)(int width, int64_t n, void *W, const attn_drop *drop, double keep);
    /* most = max(most, block_max), which NaN may or may not enter. */
    void (*keep_max)(int width, const void *block_max, void *most);
    /* sums[lane] += sum_j p_j and sums[tile_q + lane] += sum_j p_j (S[j][lane] - m), with p_j = exp(S[j][lane] - m). */
    void (*add_entropy)(int width, int64_t n, const void *S, const void *m, double *sums);
    /* Keys first .. first+n-1 enter the k best of each lane: top [k][tile_q] of T and index [k][tile_q], sorted by falling weight,
     * the first comer before its equals.  A place not taken has weight -1.  Dropped keys and weights that are NaN stay out. */
    void (*take_top)(int width, int64_t rows, int64_t n, const void *S, const void *m, const void *l, int64_t first, int64_t k,
                     void *top, int64_t *index);
    /* sums[j] += sum over lanes first .. end-1 of W[j][lane]. */
    void (*sum_columns)(int width, int64_t first, int64_t end, int64_t n, const void *W, double *sums);
    /* keep[i*stride + j] = 1 where drop keeps query i and key j of its tile, else 0, for its rows and n keys. */
    void (*store_keep)(int64_t n, const attn_drop *drop, unsigned char *keep, int64_t stride);
} attn_out_kernel;

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
typedef struct attn_additive_kernel {
    /* Qt has the queries in its first rows, as pack_query left them: adds the biases and makes the rest. */
    void (*prepare_queries)(int width, int64_t hidden, const void *w, void *Qt);
    /* n rows of K have the keys: makes the rest. */
    void (*prepare_keys)(int64_t n, int64_t hidden, void *K, int64_t ldk);
    /* S and block_max as in score and score_seen below. */
    void (*score)(int width, int64_t n, int64_t hidden, const void *Qt, const void *K, int64_t ldk, const void *w, double scale,
                  void *S, void *block_max);
    void (*score_seen)(int width, int64_t n, int64_t hidden, const void *Qt, const void *K, int64_t ldk, const void *w,
                       double scale, void *S, void *block_max, const int32_t *low, const int32_t *high);
} attn_additive_kernel;

/*
 * Weights that are a function of their own score alone: `kind` is ATTN_NORMALISER_SIGMOID, 1 / (1 + exp(-S - shift)), or
 * ATTN_NORMALISER_RELU, max(S, 0).  A dropped key, whose S is -infinity, has weight 0.
 */
typedef struct attn_alone_kernel {
    /* S becomes weights; l += how many keys are not dropped; Ot += sum_j S_j V_j, of those that drop keeps. */
    void (*fold)(attn_normaliser kind, double shift, int width, int64_t n, int64_t dim_v, void *S, const attn_drop *drop,
                 const void *V, int64_t ldv, void *l, void *Ot, const void *next, int64_t next_ld);
    /* The same as fold_careful below.  scratch: like S. */
    void (*fold_careful)(attn_normaliser kind, double shift, int width, int64_t n, int64_t dim_v, void *S, const attn_drop *drop,
                         const void *V, int64_t ldv, void *l, void *Ot, void *scratch);
    /* l = 1 where it is above 0, else 0. */
    void (*settle)(int width, void *l);
    /* S becomes weights over l; 0 where l is 0. */
    void (*weigh)(attn_normaliser kind, double shift, int width, int64_t n, void *S, const void *l);
    /* With f the weight and Z = keep where drop keeps it, 0 where not:  dP = Z dP f'(S) exp(-lse), 0 where the rest is, whatever
     * stands in it;  S = Z f(S) exp(-lse).  scratch: like S. */
    void (*gradient)(attn_normaliser kind, double shift, int width, int64_t n, void *S, void *dP, const void *lse,
                     const attn_drop *drop, double keep, void *scratch);
} attn_alone_kernel;

/* Results of the same queries over disjoint keys, `parts` rows of `dim` numbers of any storage type for each of them. */
typedef struct attn_parts_kernel {
    /* L [part][ld], the lse of `rows` rows, becomes weights, 0 where it is -infinity.  With most and total as the largest lse
     * and the sum that is divided by, the lse of all is most + log(total). */
    void (*weights)(int64_t parts, int64_t rows, void *L, int64_t ld, void *most, void *total);
    /* out = start (NULL: 0) + sum over parts of weights[part*ld] rows[part], rounded once; a part of weight 0 is not read.
     * out is of dtype if `last`, else of T, as start is.  It may be one of the rows. */
    void (*add)(int64_t parts, int64_t dim, const void *const *rows, attn_dtype dtype, const void *weights, int64_t ld,
                const void *start, void *out, int last);
    /* sum_c a[c] b[c]. */
    double (*inner)(int64_t dim, const void *a, const void *b, attn_dtype dtype);
} attn_parts_kernel;

/*
 * The steps of short heads, whose scores all fit a cache.  Here rows stay rows and keys lie in the lanes, so that O, dQ, dK and dV
 * come out as the caller has them, each as one chain of sums over all keys or queries, and of what a causal mask drops no more is
 * computed than a few rows and a vector of keys beside the diagonal.
 *
 *      Kt [dim][tile_q]    a tile of keys (or values), as pack_query makes it of them
 *      S  [rows][ld]       scores, a row for each query; ld is a multiple of lanes, and lanes past the last key may hold anything
 *
 * `sees` says what a causal mask leaves: row i sees the first sees + i keys, as far as there are as many and that is not negative.
 * All elements are of T, and head sizes are multiples of lanes.
 */
typedef struct attn_short_product {
    int64_t rows, steps, dim;
    const void *A; /* element (m, k) at m*row + k*step, of which one is 1 */
    int64_t row, step;
    const void *B; /* rows of ldb elements */
    int64_t ldb;
    int64_t from, to;    /* row m has the steps m + from .. m + to - 1, as far as there are such */
    const void *factors; /* of each row, factor_step apart, which may be 0 */
    int64_t factor_step;
    void *C; /* rows of ldc elements */
    int64_t ldc;
} attn_short_product;

/* A head without a mask, with queries in the lanes, who see all n keys. */
typedef struct attn_short_lanes {
    /* S and block_max as `score` of attn_fwd_kernel makes them. */
    void (*score)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                  const void *next, int64_t next_ld);
    /* S becomes weights and block_max m, with factors and lse as in `weigh` below.  Returns 1 if some l is 0. */
    int (*weigh)(int width, int64_t rows, int64_t n, void *S, void *block_max, void *factors, void *lse, int64_t lse_stride);
    /* O[i][c] = factors[i] sum_j P[j][lane i] V[j][c]. */
    void (*values)(int64_t rows, int64_t n, int64_t dim, const void *P, const void *V, int64_t ldv, const void *factors, void *O,
                   int64_t ldo, attn_soon *soon);
} attn_short_lanes;

enum { ATTN_SHORT_FOUR = 4 };

typedef struct attn_short_kernel {
    /* S[i][lane] = sum_c X[i][c] Kt[c][lane], but in vectors of which row i sees nothing. */
    void (*score)(int width, int64_t rows, int64_t dim, const void *X, int64_t ldx, const void *Kt, int64_t sees, void *S,
                  int64_t ld, attn_soon *soon);
    /* Rows of n scores become exp(S - m), m being the largest that the row sees, and 0 behind these for as many keys as a product
     * may take with them;  factors[i] = 1 / l, l their sum, and 0 where that is 0 (both have rows up to a multiple of lanes);
     * lse[i*lse_stride] = m + log(l) (NULL: skipped). */
    void (*weigh)(int64_t rows, int64_t n, int64_t sees, void *S, int64_t ld, void *factors, void *lse, int64_t lse_stride);
    /* C[m][c] = factor_m sum_k A[m][k] B[k][c].  May take more steps than row m has, where A is 0, the same for all rows of a few.
     * Returns 1 if some of C is not finite; then `careful` repeats it, slowly and with the same bits where it was, but without
     * those. */
    int (*product)(const attn_short_product *p, attn_soon *soon);
    void (*careful)(const attn_short_product *p);

    attn_short_lanes tile;
    /* The same numbers for at most ATTN_SHORT_FOUR queries, in the first lanes of Qt, with S [n up to a multiple of 4][4] and a
     * vector each of block_max and factors.  NULL: they are not faster than a vector of a tile. */
    attn_short_lanes four;
} attn_short_kernel;

static inline int64_t attn_additive_rows(int64_t hidden) { return 3 * hidden + 1; }
static inline int64_t attn_additive_key(int64_t hidden) { return 2 * hidden + 1; }
static inline int64_t attn_additive_weights(int64_t hidden) { return 2 * hidden + 2; }

/*
 * Scores of queries and keys that are stored in bf16, as they are: products of two channels at a time are added to sums in f32
 * (vdpbf16ps), each rounded to nearest even, the odd channel's first.  Such a product is exact, so a score is a chain of fused
 * multiply-adds as ever, but numbers below the smallest normal one count as 0, what is read and what is summed alike.
 *
 * In place of Qt and rows of keys there are pairs, of 32 bits: channels 2p and 2p+1, the even one in the lower half, and 0 behind
 * the last channel.  A tile has attn_bf16_pairs(dim) rows of them, a key as many, and the next key follows at once.
 */
typedef struct attn_bf16_kernel {
    /* Qt[p][lane] = channels 2p and 2p+1 of q[min(lane, rows-1)]; not scaled. */
    void (*pack_query)(int width, int64_t rows, int64_t dim, const void *q, int64_t stride, void *Qt);
    /* dst[i][p] = channels 2p and 2p+1 of src[i*stride]. */
    void (*load_rows)(int64_t n, int64_t dim, const void *src, int64_t stride, void *dst);
    /* S[j][lane] = (T)scale * sum_c K[j][c] Qt[c][lane], rounded once more; the rest as in score_beside and score_seen below. */
    void (*score)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S, void *block_max,
                  const void *next, int64_t next_ld, const attn_coming *beside);
    void (*score_seen)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, double scale, void *S, void *block_max,
                       const int32_t *low, const int32_t *high, const void *next, int64_t next_ld);
} attn_bf16_kernel;

static inline int64_t attn_bf16_pairs(int64_t dim) { return dim / 2 + dim % 2; }

typedef struct attn_fwd_kernel {
    int lanes;   /* elements of T in a vector */
    int vectors; /* vectors in a full tile */

    /* Keys in a block for these head sizes: a function of the sizes alone, since results depend on it. */
    int64_t (*block_kv)(int64_t dim_qk, int64_t dim_v);

    /* Qt[c][lane] = (T)scale * q[min(lane, rows-1)][c], rounded once in T.  q: rows of `dtype` at `stride`. */
    void (*pack_query)(int width, int64_t rows, int64_t dim, const void *q, attn_dtype dtype, int64_t stride, double scale,
                       void *Qt);

    /* dst[i*ld + c] = (T)src[i*stride + c] for n rows: brings 16-bit or badly strided keys and values into compact rows of T. */
    void (*load_rows)(int64_t n, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, void *dst, int64_t ld);
    /* X[i*ld + c] *= factors[i*stride] for n rows: what whole numbers stand for. */
    void (*scale_rows)(int64_t n, int64_t dim, const void *factors, int64_t stride, void *X, int64_t ld);

    /* S[j][lane] = sum_c K[j][c] * Qt[c][lane], and block_max[lane] = max_j S[j][lane] (a NaN score may or may not enter).
     * n >= 1; dim may be 0.  `next` is what the caller will read soon (the block's values), n rows of next_ld: a hint for
     * prefetching, never NULL, never dereferenced. */
    void (*score)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                  const void *next, int64_t next_ld);

    /* The same, and what lies beside it in the coming steps (a bias, a mask), which is read once and comes from far: a hint too. */
    void (*score_beside)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                         const void *next, int64_t next_ld, const attn_coming *beside);

    /* The same as score where each lane keeps the keys low[lane] <= j < high[lane] only, 0 <= low <= high <= n, both of which stay
     * or move forward from lane to lane: S is -infinity outside, which block_max does not count, and what no lane of a vector keeps
     * is not computed.  low and high have width*lanes entries; lanes past rows repeat the last real one. */
    void (*score_seen)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                       const int32_t *low, const int32_t *high, const void *next, int64_t next_ld);

    /* The modifiers.  A dropped score becomes exactly -infinity, whatever it was (NaN too).  They bring block_max up to date, all
     * but keep_range.  Lanes past rows go on repeating the last real query. */

    /* Keeps S[j][lane] iff low[lane] <= j < high[lane]; 0 <= low, high <= n.  Causal, window and lengths all come as this.
     * low and high have width*lanes entries; lanes past rows repeat the last real one. */
    void (*keep_range)(int width, int64_t n, void *S, const int32_t *low, const int32_t *high);
    /* Drops where the byte is 0.  scratch: T[tile_q * (n rounded up to lanes)]. */
    void (*keep_mask)(int width, int64_t rows, int64_t n, void *S, void *block_max, const attn_block *mask, void *scratch);
    /* S += bias, one rounding; -infinity drops.  scratch as above. */
    void (*add_bias)(int width, int64_t rows, int64_t n, void *S, void *block_max, const attn_block *bias, void *scratch);
    /* S = cap * tanh(S / cap).  slope, bend: NULL, or buffers like S for the derivatives, 1 - tanh^2 and the second one. */
    void (*softcap)(int width, int64_t n, void *S, void *block_max, double cap, void *slope, void *bend);
    /* S -= slope * |first + i - j|: lane i stands at first + i when key j of the block stands at j. */
    void (*add_alibi)(int width, int64_t rows, int64_t n, void *S, void *block_max, double slope, double first);
    /* S[j][lane] += strip[lane + n-1 - j], a table by distance, with n + width*lanes - 1 elements;  block_max[lane] = max_j
     * S[j][lane]. The strip goes on where lanes past rows read it. */
    void (*add_strip)(int width, int64_t n, void *S, const void *strip, void *block_max);

    /* Relative terms.  G [n + width*lanes - 1][tile_q] is a band: row i + n-1 - j has what lane i has of key j.  What is added may
     * raise block_max, which has no part of these n rows before. */

    /* S[j][i] += G[i + n-1 - j][i]. */
    void (*add_skewed)(int width, int64_t n, const void *G, void *S, void *block_max);
    /* G[i + n-1 - j][i] = S[j][i], and 0 elsewhere. */
    void (*skew)(int width, int64_t n, const void *S, void *G);
    /* S[j][i] += lanes[i]. */
    void (*add_to_lanes)(int width, int64_t n, void *S, const void *lanes, void *block_max);
    /* sums[i] = sum_j S[j][i]. */
    void (*sum_keys)(int width, int64_t n, const void *S, void *sums);
    /* Ot[c][lane] += sum_j S[j][lane] V[j][c].  careful: what S has 0 for is not read. */
    void (*add_values)(int width, int64_t n, int64_t dim, const void *S, const void *V, int64_t ldv, void *Ot);
    void (*add_values_careful)(int width, int64_t n, int64_t dim, const void *S, const void *V, int64_t ldv, void *Ot);

    /* S = 0 in the lanes where empty is 1. */
    void (*revive)(int width, int64_t n, void *S, const int32_t *empty);
    /* block_max[lane] = max_j S[j][lane]. */
    void (*block_max)(int width, int64_t n, const void *S, void *block_max);

    /* Ot = 0; m = sink and l = 1, or, where sink is -infinity, m = the lowest finite number of T and l = 0. */
    void (*start)(int width, int64_t dim_v, double sink, void *m, void *l, void *Ot);

    /*
     * One step of the online softmax (Milakov and Gimelshein 2018, algorithm 3), per lane, all in natural units:
     *
     *      m' = block_max if block_max > m + 5.5 else m     (lazy: l and Ot may grow by e^5.5 before they are rescaled)
     *      S  = exp(S - m');   l = exp(m-m') l + sum_j S_j;   Ot = exp(m-m') Ot + sum_j S_j V_j;   m = m'
     *
     * m' is a score, and the difference is taken before any product, so scores of any size (a row of -FLT_MAX too) keep their
     * weights.  -infinity gives exactly 0, and what would be below the smallest normal number is below it, or 0.  NaN stays NaN,
     * with any payload.  drop: NULL, or which S_j are 0 for Ot (l has them).  `next`: n rows that the caller will read soon, as in
     * score.
     */
    void (*fold)(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const attn_drop *drop, const void *V,
                 int64_t ldv, void *m, void *l, void *Ot, const void *next, int64_t next_ld);
    /* The same where S is -infinity outside low and high, which are as in score_seen: values there may be left out, or be taken
     * times 0. */
    void (*fold_seen)(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const attn_drop *drop, const void *V,
                      int64_t ldv, void *m, void *l, void *Ot, const int32_t *low, const int32_t *high, const void *next,
                      int64_t next_ld);
    /* As fold, but a key that is dropped, by a score of -infinity or by drop, contributes nothing even where its value is NaN or
     * infinite (0 * NaN in fold).
     * Slow; the scheduler repeats a tile with it when Ot came out not finite and keys were dropped inside visited blocks.
     * scratch: T[n * tile_q]. */
    void (*fold_careful)(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const attn_drop *drop, const void *V,
                         int64_t ldv, void *m, void *l, void *Ot, void *scratch);
    /* m, l and Ot absorb the state of other keys: the larger m is kept, both sides are scaled to it. */
    void (*merge)(int width, int64_t dim_v, const void *m_other, const void *l_other, const void *Ot_other, void *m, void *l,
                  void *Ot);
    /* 1 if any real lane of Ot is NaN or infinite. */
    int (*not_finite)(int width, int64_t rows, int64_t dim_v, const void *Ot);

    /* empty[i] = 1 where l is 0, else 0, for width*lanes lanes; returns 1 if any is. */
    int (*find_empty)(int width, int64_t rows, const void *l, int32_t *empty);

    /* o[i][:] = Ot[:][i] * (keep / l[i]), or 0 where l is 0; rounded once to `dtype`.  lse[i*lse_stride] = ln2 * m[i] + log(l[i]),
     * -infinity where l is 0; skipped if lse is NULL (lse has type T).  Writes `rows` rows. */
    void (*finish)(int width, int64_t rows, int64_t dim_v, double keep, const void *m, const void *l, const void *Ot, void *o,
                   attn_dtype dtype, int64_t stride, void *lse, int64_t lse_stride);

    /* dst[i*stride + j] = factor * X[j][i] for `rows` lanes i and n rows j of a tile buffer; rounded once to dtype. */
    void (*store_columns)(int width, int64_t rows, int64_t n, double factor, const void *X, void *dst, attn_dtype dtype,
                          int64_t stride);

    attn_out_kernel outputs;
    attn_additive_kernel additive;
    attn_alone_kernel alone;
    attn_short_kernel short_heads;
    attn_parts_kernel parts;
    /* NULL: bf16 is brought into T like all else.  A row that has it runs only what it is for (plan/choose.c). */
    const attn_bf16_kernel *bf16;
} attn_fwd_kernel;

/*
 * The steps of backward.  It uses the forward kernel of the same type and instruction set for scores, modifiers, packing and the
 * product dP^T = V dO^T (which is `score` with values for keys), so tile buffers are laid out as above.  Column panels hold a
 * tile's rows naturally: element (i, c) at (c / tile_q)*tile_q^2 + i*tile_q + c % tile_q, with zeros past the last column.
 * Everything is accumulated in T; sums that end as one number are double.
 */
typedef struct attn_bwd_kernel {
    /* Rows of a tile, times scale, into column panels.  Returns 1 if all that it wrote is finite. */
    int (*pack_rows)(int64_t rows, int64_t dim, const void *src, attn_dtype dtype, int64_t stride, double scale, void *panels);
    /* 1 if an element is NaN or infinite. */
    int (*rows_not_finite)(int64_t n, int64_t dim, const void *K, int64_t ldk);

    /* delta[lane] = sum_c dOt[c][lane] Ot[c][lane] - grad_lse[lane] (NULL: 0), where a dOt whose Ot is 0 is not read.
     * lse_lanes[lane] = lse[lane], or the largest finite number where it is -infinity or the row is not below `live`, so that
     * weights come out 0.  lse: T at lse_stride; grad_lse likewise. */
    void (*delta)(int width, int64_t rows, int64_t dim_v, const void *dOt, const void *Ot, const void *lse, int64_t lse_stride,
                  const void *grad_lse, int64_t grad_lse_stride, int64_t live, void *delta, void *lse_lanes);

    /*
     *      P = exp(S - lse)      W = P, or keep * P where drop keeps it and 0 where not      dS = W dP - P delta
     *
     * S becomes W and dP becomes dS.  Where P is 0 so is dS, whatever stands in dP; where W is 0, dP is not read.  scratch: like S.
     */
    void (*gradient)(int width, int64_t n, void *S, void *dP, const void *lse, const void *delta, const attn_drop *drop,
                     double keep, void *scratch);
    /* X *= Y, two buffers like S.  What is 0 stays 0, also where Y is NaN. */
    void (*multiply)(int width, int64_t n, void *X, const void *Y);

    /* C[j][c] += sum_i A[j][i] B[i][c] over `rows` queries, for n keys: A like S, B in column panels, C with rows of ldc, a
     * multiple of lanes and at least dim rounded up to lanes.  careful: what A has 0 for is not read. */
    void (*add_outer)(int64_t n, int64_t rows, int64_t dim, const void *A, const void *panels, void *C, int64_t ldc,
                      attn_soon *soon);
    void (*add_outer_careful)(int64_t n, int64_t rows, int64_t dim, const void *A, const void *panels, void *C, int64_t ldc,
                              attn_soon *soon);
    /* dQt[c][lane] += sum_j K[j][c] dS[j][lane]. */
    void (*add_values)(int width, int64_t n, int64_t dim, const void *dS, const void *K, int64_t ldk, void *dQt);
    void (*add_values_careful)(int width, int64_t n, int64_t dim, const void *dS, const void *K, int64_t ldk, void *dQt);

    /* dst[j][c] = factor * src[j][c], src with rows of ld as in add_outer. */
    void (*store_rows)(int64_t n, int64_t dim, double factor, const void *src, int64_t ld, void *dst, attn_dtype dtype,
                       int64_t stride);
    /* dst[i] += src[i]. */
    void (*add)(int64_t count, const void *src, void *dst);

    /* sum over c and lanes below rows of X[c][lane] Y[c][lane], reading X only where Y is not 0. */
    double (*inner)(int64_t rows, int64_t dim, const void *X, const void *Y);
    /* sum_ij dS_ij |first + i - j|. */
    double (*sum_distances)(int64_t rows, int64_t n, const void *dS, double first);
    /* sums[i + n-1 - j] += dS[j][i] for i < rows, n + width*lanes - 1 sums.  scratch: T[lanes * (n + (width + 1) * lanes)]. */
    void (*sum_strip)(int width, int64_t rows, int64_t n, const void *dS, void *scratch, double *sums);
    /* sums[j or 0][i or 0] += dS[j][i]: sums is like S; over_queries adds all into column 0, over_keys into row 0. */
    void (*reduce_pairs)(int64_t rows, int64_t n, const void *dS, int over_queries, int over_keys, void *sums);

    /*
     * Additive scores: with t_ija = tanh(x_ia + y_ja) and t' its derivative, over `rows` queries and n keys,
     *
     *      dQt[a][i] += sum_j dS_ij t' / 4      dK[j][a] += scale w_a sum_i dS_ij t'
     *      dw[a] += sum_ij dS_ij t              (NULL: skipped)
     *
     * dS is cleared in the lanes past rows.  additive_finish: dQt[a] *= 4 w_a, and db[a] += the sum of its rows (NULL: skipped).
     */
    void (*additive)(int width, int64_t rows, int64_t n, int64_t hidden, const void *Qt, const void *K, int64_t ldk, const void *w,
                     double scale, void *dS, void *dQt, void *dK, int64_t lddk, double *dw);
    void (*additive_finish)(int width, int64_t rows, int64_t hidden, const void *w, void *dQt, double *db);

    /* Short heads, with `sees` as in attn_short_kernel.  delta and lse_rows as in delta above, from rows. */
    void (*short_delta)(int64_t rows, int64_t dim_v, const void *dO, int64_t lddo, const void *O, int64_t ldo, const void *lse,
                        int64_t lse_stride, const void *grad_lse, int64_t grad_lse_stride, void *delta, void *lse_rows);
    /* S becomes P = exp(S - lse), and dS, which holds dP, becomes P (dP - delta), and 0 where P is 0 whatever stands in dP; both
     * are 0 behind what a row sees, as in weigh. */
    void (*short_gradient)(int width, int64_t rows, int64_t sees, void *S, int64_t ld, void *dS, int64_t ldd, const void *lse,
                           const void *delta);
} attn_bwd_kernel;

/* The steps of forward mode, beside those of the two kernels above. */
typedef struct attn_jvp_kernel {
    /* Sd += other (NULL: 0). */
    void (*add_tangents)(int width, int64_t n, void *Sd, const void *other);

    /*
     *      P = exp(S - lse)      W = P, or keep * P where drop keeps it and 0 where not
     *      mu[lane] += sum_j P_j Sd_j      S = W      Sd = W Sd
     *
     * Where P is 0, and for the product where W is, Sd is not read.
     */
    void (*tangent)(int width, int64_t n, void *S, void *Sd, const void *lse, const attn_drop *drop, double keep, void *mu);

    /* At -= mu Ot: Ot is not read where mu is 0. */
    void (*center)(int width, int64_t dim_v, const void *mu, const void *Ot, void *At);
} attn_jvp_kernel;

/* The steps of the second order, beside those of the three kernels above. */
typedef struct attn_second_kernel {
    /* sums[lane] = sum_c Xt[c][lane] Yt[c][lane]. */
    void (*dot)(int width, int64_t dim, const void *Xt, const void *Yt, void *sums);

    /*
     *      P = exp(S - lse)      W = P, or keep * P where drop keeps it and 0 where not
     *
     *      dP = dS = W dP - P delta
     *      Sd = R  = (Sd - mu) dS + W h - P kappa
     *      S  = T  = W (Sd - mu)
     *
     * h: NULL for 0.  Where P is 0 so are all three, whatever stands in the others; where W is 0, neither dP nor h is read.
     * scratch: like S.
     */
    void (*second)(int width, int64_t n, void *S, void *dP, void *Sd, const void *h, const void *lse, const void *delta,
                   const void *mu, const void *kappa, const attn_drop *drop, double keep, void *scratch);

    /* R = R slope + dS bend before, then dS *= slope: through the softcap.  before: the tangents of the scores ahead of it.  What
     * is 0 in R or dS adds nothing, whatever stands in the others. */
    void (*through_softcap)(int width, int64_t n, void *R, void *dS, const void *slope, const void *bend, const void *before);
} attn_second_kernel;

/* One token of one state: S [dim_k][ld]. */
typedef struct attn_token {
    int64_t dim_k, dim_v, ld;
    const void *q, *k, *v; /* features of the query and the key; the value */
    const void *gate;      /* NULL, one factor, or, with gate_channels, dim_k */
    int gate_channels;
    int delta; /* 1: the delta rule, with beta */
    double beta;
    void *S;
    void *y; /* [dim_v]: sum_c q_c S[c][:], after the update; scratch in token_backward */
    void *u; /* [dim_v]: scratch of the delta rule */
} attn_token;

/*
 * The steps of linear attention, beside those of the forward and backward kernels.  Rows of features and states are padded to whole
 * vectors (ld a multiple of lanes), and the padding may hold anything; buffers [tile_q] are lanes.
 */
typedef struct attn_linear_kernel {
    /* X = f(X) for n rows, in place; the maps that are not random, but identity. */
    void (*features)(attn_features kind, int64_t n, int64_t dim, void *X, int64_t ld);
    /* The same in a tile, Xt [dim][tile_q]: the maps that take each number for itself (ELU+1, ReLU). */
    void (*lane_features)(attn_features kind, int width, int64_t dim, void *Xt);
    /* G = f'(x)^T G, from F = f(x). */
    void (*features_backward)(attn_features kind, int64_t n, int64_t dim, const void *F, void *G, int64_t ld);
    /* U[j][m] = omega_m.x_j becomes the features (twice `count` for cosines and sines). */
    void (*random_features)(attn_features kind, int64_t n, int64_t dim, int64_t count, const void *X, int64_t ldx, void *U,
                            int64_t ldu);
    /* G, the gradient of features F, becomes that of omega_m.x_j, m < count; sums[j] = the factor of x_j beside it. */
    void (*random_features_backward)(attn_features kind, int64_t n, int64_t count, const void *F, void *G, int64_t ld, void *sums);

    /* The products; `soon` is asked for meanwhile.  S[j][lane] = sum_c K[j][c] Xt[c][lane]. */
    void (*pairs)(int width, int64_t n, int64_t dim, const void *Xt, const void *K, int64_t ldk, void *S, attn_soon *soon);
    /* Ot[d][lane] = (add: +=) sum_j V[j][d] Xt[j][lane] for d < dim, j < n. */
    void (*read)(int width, int64_t n, int64_t dim, const void *Xt, const void *V, int64_t ldv, int add, void *Ot, attn_soon *soon);
    /* St[c][d] += sum_j K[j][c] V[j][d], V in column panels. */
    void (*update_state)(int64_t n, int64_t dim_k, int64_t dim_v, const void *K, int64_t ldk, const void *panels, void *St,
                         int64_t ld, attn_soon *soon);

    /*
     * S[r][lane] = (S[r][lane] + add_lanes[lane] + add_rows[r]) exp(lane_log[lane] - row_log[r]) where r <= first + lane, else 0;
     * sums[lane] += what became of it.  reverse: where r >= first + lane, and with the sign of the exponent changed.  Each of
     * add_lanes, add_rows, sums and (both) logs may be NULL.
     */
    void (*weigh)(int width, int64_t n, void *S, int64_t first, int reverse, const void *add_lanes, const void *add_rows,
                  const void *lane_log, const void *row_log, void *sums);
    /* Rows of the compute type, with ld; returns 1 if all are finite. */
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
    /* A[i][:] *= factors[i] (NULL: 1);  terms[i] = -A[i].O[i] (NULL: not wanted). */
    void (*row_terms)(int64_t n, int64_t dim, void *A, int64_t lda, const void *O, int64_t ldo, const void *factors, void *terms);

    /* S = gate S + k u^T;  y = q^T S. */
    void (*token)(const attn_token *t);
    /* y = q^T S. */
    void (*recall)(int64_t dim_k, int64_t dim_v, const void *q, const void *S, int64_t ld, void *y);
    /* z = gate z + k (k NULL: z stays); returns q.z */
    double (*token_sum)(int64_t dim, const void *q, const void *k, const void *gate, int channels, void *z);
    /* dS += q a^T;  dq = S a. */
    void (*recall_backward)(int64_t dim_k, int64_t dim_v, const void *q, const void *a, const void *S, int64_t ld, void *dS,
                            void *dq);
    /* From dS after the token to dS before it, with the state `before` it; dlog [dim_k]: of the log of each gate. */
    void (*token_backward)(const attn_token *t, const void *before, void *dS, void *dk, void *dv, double *dbeta, void *dlog);

    /* X = exp(X), which stays finite. */
    void (*gates)(int64_t n, int64_t dim, void *X, int64_t ld);
    /* out_i = X_i times gates_0 .. gates_i (behind: gates_(i+1) .. gates_(n-1)); total: times all of them, of 1.  Whole vectors. */
    void (*decay_rows)(int64_t n, int64_t dim, const void *X, const void *gates, int64_t ld, int behind, void *out, void *total);
    /*
     * S[r][lane] = sum_c Xt[c][lane] rows[r][c] times the gates of channel c of the tokens r+1 .. first+lane, where r + strict <=
     * first + lane, else 0; reverse: of the tokens lane+1 .. r, where r >= lane + strict.  Xt ends as it is times all gates of
     * the tokens 0 .. first+lane; reverse: lane+1 .. n-1.
     */
    void (*score_gated)(int width, int64_t n, int64_t dim, void *Xt, const void *rows, const void *gates, int64_t ld, int64_t first,
                        int strict, int reverse, void *S);
    /* Gt[c][lane] times the same gates as Xt ends with, plus sum_r S[r][lane] rows[r][c] times the same gates as in S. */
    void (*add_gated)(int width, int64_t n, int64_t dim, const void *S, const void *rows, const void *gates, int64_t ld,
                      int64_t first, int reverse, void *Gt);
    /* W_i = V_i - X_i - sum_(j<i) S[j][i] U_j;  U_i = beta_i W_i. */
    void (*solve)(int64_t n, int64_t dim, const void *S, const void *X, const void *V, int64_t ldv, const void *beta, void *W,
                  void *U, int64_t ld);
    /* From the last row on: dU_j += sum_(i>j) S[i][j] N_i;  N_j = -beta_j dU_j. */
    void (*solve_back)(int64_t n, int64_t dim, const void *S, void *dU, const void *beta, void *N, int64_t ld);
    /* Z += sign X times Y, by element. */
    void (*add_multiplied)(int64_t n, int64_t dim, double sign, const void *X, int64_t ldx, const void *Y, int64_t ldy, void *Z,
                           int64_t ldz);
    /* X_i = last + X_i + .. + X_(n-1), summed in double. */
    void (*sums_from)(int64_t n, int64_t dim, const void *last, void *X, int64_t ld);
} attn_linear_kernel;

/*
 * The steps of a product of matrices, C = or += A B (add).  Rows of C are ldc apart, of B ldb; a(i, k) = A[i*row + k*step].  All
 * but `dots` sum the terms of one call in one chain from 0, k ascending, so that any of them may take any part of C.
 */
typedef struct attn_product_kernel {
    int lanes, vectors, group;
    /* packed[k][i] = X[k*ld + i], or turned X[i*ld + k], for i < count and k < steps.  Rows of A: [steps][group]; a panel of B:
     * [steps][lanes * vectors].  What is behind `count` rounded up to lanes is not written, and what is before that is 0. */
    void (*pack)(int panel, int64_t count, int64_t steps, const void *X, int64_t ld, int turned, void *packed);
    /* A is groups of packed rows, one behind the other, B a packed panel, columns <= lanes * vectors. */
    void (*multiply)(int64_t rows, int64_t columns, int64_t steps, const void *A, const void *B, int add, void *C, int64_t ldc);
    /* A and B as they lie in memory: reads B once for every few rows. */
    void (*in_place)(int64_t rows, int64_t columns, int64_t steps, const void *A, int64_t row, int64_t step, const void *B,
                     int64_t ldb, int add, void *C, int64_t ldc);
    /* Reads B once, ATTN_SWEEP_STEPS rows at a time, and C for each of these.  go_on: the chains begin with what is in C.  add only
     * with steps <= ATTN_SWEEP_STEPS. */
    void (*sweep)(int64_t rows, int64_t columns, int64_t steps, const void *A, int64_t row, int64_t step, const void *B,
                  int64_t ldb, int go_on, int add, void *C, int64_t ldc);
    /* C = or += S. */
    void (*join)(int64_t count, const void *S, int add, void *C);
    /* Of B turned, b(k, j) = B[j*ldb + k], and rows of A lda apart: reads B once for 4 rows.  A chain for each of the lanes, of
     * every lanes-th term, and then a tree. */
    void (*dots)(int64_t rows, int64_t columns, int64_t steps, const void *A, int64_t lda, const void *B, int64_t ldb, int add,
                 void *C, int64_t ldc);
} attn_product_kernel;

enum { ATTN_SWEEP_STEPS = 8 };

/*
 * Keys and values of i8 as whole numbers: a row X of queries or weights becomes unit (65536 d2 + 256 d1 + d0), with a unit, a power
 * of 2, that the largest of it chooses, so that products and sums of digits are exact in 32 bits, and blocks may be cut anywhere.
 * A row of digits is ldd = ATTN_DIGIT_BYTES bytes, aligned to 16: the same for all rows, and for weights made for the whole block.
 */
enum { ATTN_DIGIT_HEAD = 64, ATTN_MOST_DIGIT_CHANNELS = 1 << 15 };
#define ATTN_DIGIT_BYTES(n)    (ATTN_DIGIT_HEAD + 3 * (((int64_t)(n) + 3 + 63) / 64 * 64))
#define ATTN_DIGIT_SUMS(dim_v) (3 * (((int64_t)(dim_v) + 63) / 64 * 64))

typedef struct attn_digit_kernel {
    /* One row of scaled queries or of weights; 0 if it cannot be: NaN, infinite, next to 0 throughout, or a weight below 0. */
    int (*query_digits)(int64_t dim, const void *Q, void *digits);
    int (*weight_digits)(int64_t n, const void *P, void *digits, int64_t ldd);
    /* S[i][j] = sum_c Q[i][c] K[j][c].  Rows up to a multiple of 4 are there, and computed; n >= 1. */
    void (*dots)(int64_t rows, int64_t n, int64_t dim, const void *digits, int64_t ldd, const void *K, int64_t ldk, void *S,
                 int64_t lds, int64_t fetch);
    /* sums += products of the weights of keys first .. first + n-1 and n values: int32_t[rows][ATTN_DIGIT_SUMS(dim_v)]. */
    void (*add_values)(int64_t rows, int64_t n, int64_t dim_v, const void *digits, int64_t ldd, int64_t first, const void *V,
                       int64_t ldv, void *sums, int64_t fetch);
    /* One row of O, ldo elements, from its sums. */
    void (*output)(int64_t dim_v, const void *digits, const void *sums, void *O, int64_t ldo);
} attn_digit_kernel;

/* Scores of queries and keys of bf16 as attn_bf16_kernel has them; rows of queries are pairs, attn_bf16_pairs(dim) of them. */
typedef struct attn_dec_bf16_kernel {
    /* Q[i] = the pairs of q[i], not scaled. */
    void (*pack_rows)(int64_t rows, int64_t dim, const void *q, int64_t stride, void *Q, int64_t ldq);
    /* S[i][j] = sum_c Q[i][c] K[j][c], as dots of attn_dec_kernel. */
    void (*dots)(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, int64_t ldk, void *S, int64_t lds,
                 int64_t fetch, int far);
    /* One row: S *= (T)scale, rounded once more. */
    void (*scale_row)(int64_t n, void *S, double scale);
} attn_dec_bf16_kernel;

/*
 * The steps of decode: few queries, many keys.  Rows stay rows of length ldq, lds or ldo, multiples of lanes and at least as long
 * as what they hold; channels lie in the lanes, and keys and values are read in place, in their storage type (f32, f16, bf16 or
 * i8; f64). Where a storage type is read as even and odd channels, a row that meets it has them in that order (`order` names the
 * type).
 *
 *      Q [rows][ldq]     queries, scaled
 *      S [rows][lds]     scores of n keys, which weigh_row turns into unnormalised weights
 *      O [rows][ldo]     output accumulator
 *
 * What a row gets depends on its query, its keys and their places in the block, not on other rows: a score is a sum over the
 * channels that has the same tree everywhere, O one chain of fused multiply-adds over the keys, wherever calls divide it.  `fetch`:
 * what lies that many bytes behind each key or value will be read soon; `far`: 1 if it comes from memory; hints for prefetching.
 */
typedef struct attn_dec_kernel {
    int lanes;
    /* Keys in a block, a multiple of lanes: a function of the sizes alone. */
    int64_t (*block_kv)(int64_t dim_qk, int64_t dim_v);
    /* Q[i][c] = (T)scale * q[i][c], rounded once in T. */
    void (*pack_rows)(int64_t rows, int64_t dim, const void *q, attn_dtype dtype, int64_t stride, double scale, attn_dtype order,
                      void *Q, int64_t ldq);
    /* S[i][j] = sum_c Q[i][c] K[j][c].  Rows up to a multiple of 4 are there, and computed; n >= 1. */
    void (*dots)(int64_t rows, int64_t n, int64_t dim, const void *Q, int64_t ldq, const void *K, attn_dtype dtype, int64_t ldk,
                 void *S, int64_t lds, int64_t fetch, int far);

    /* One row of scores.  S *= factors, one for each key; keeps low <= j < high; drops where mask[j*stride] is 0; S +=
     * bias[j*stride], one rounding, where -infinity drops; S = cap * tanh(S / cap); S -= slope * |first - j|. */
    void (*scale_row)(int64_t n, void *S, const void *factors);
    void (*drop_outside)(int64_t n, void *S, int64_t low, int64_t high);
    void (*keep_row)(int64_t n, void *S, const void *mask, int64_t stride);
    void (*bias_row)(int64_t n, void *S, const void *bias, attn_dtype dtype, int64_t stride);
    void (*softcap_row)(int64_t n, void *S, double cap);
    void (*alibi_row)(int64_t n, void *S, double slope, double first);

    /* m = max_j S_j, or the lowest finite number where every key is dropped;  S = exp(S - m);  l = sum_j S_j.  Scores up to a
     * multiple of lanes are written, with 0. */
    void (*weigh_row)(int64_t n, void *S, void *m, void *l);
    /* O[i][c] += sum_j P[i][j] V[j][c].  Rows as in dots. */
    void (*add_values)(int64_t rows, int64_t n, int64_t dim_v, const void *P, int64_t ldp, const void *V, attn_dtype dtype,
                       int64_t ldv, void *O, int64_t ldo, int64_t fetch, int far);
    /* The same for one row, but a key whose score S is -infinity contributes nothing, even where its value is NaN or infinite. */
    void (*add_values_careful)(int64_t n, int64_t dim_v, const void *S, const void *P, const void *V, attn_dtype dtype, int64_t ldv,
                               void *O);
    /* 1 if O, one row, has NaN or an infinity. */
    int (*row_not_finite)(int64_t dim_v, const void *O);

    /*
     * One row from the states of its parts: m and l of `parts` numbers, O of parts with steps of ldo elements.  With M the largest
     * m (of parts with l != 0, and the sink unless that is -infinity), f_p = exp(m_p - M) and L = sum_p f_p l_p + exp(sink - M),
     *
     *      o = (sum_p f_p O_p) / L, rounded once to dtype, or 0 where L is 0      lse = M + log L, or -infinity     (NULL: skipped)
     *
     * with each sum in ascending order.  m is overwritten.  room: T[2 * (dim_v rounded up to lanes)].
     */
    void (*finish_row)(int64_t parts, int64_t dim_v, void *m, const void *l, const void *O, int64_t ldo, attn_dtype order,
                       double sink, void *room, void *o, attn_dtype dtype, void *lse);

    const attn_digit_kernel *digits;  /* NULL: keys and values of i8 are multiplied like all others */
    const attn_dec_bf16_kernel *bf16; /* NULL: so are queries and keys of bf16.  A row that has it runs only such */
} attn_dec_kernel;

/* A row of kernels.def. */
typedef struct attn_kernel_row {
    const char *name;
    attn_op op;
    attn_dtype compute;
    attn_isa isa;
    uint32_t needs; /* ATTN_CPU_ bits of base/cpu.h */
    const attn_fwd_kernel *forward;
    const attn_bwd_kernel *backward;    /* NULL for forward rows */
    const attn_jvp_kernel *jvp;         /* NULL for all but those of forward mode and the second order */
    const attn_second_kernel *second;   /* NULL for all but those of the second order */
    const attn_linear_kernel *linear;   /* NULL for all but those of linear attention */
    const attn_product_kernel *product; /* NULL for all but those of matrix products, which have no forward */
    const attn_dec_kernel *decode;      /* NULL for all but those of decode, which are forward too */
} attn_kernel_row;

/* Rows in order of preference; NULL past the last. */
const attn_kernel_row *attn_kernel_at(int index);

#endif
