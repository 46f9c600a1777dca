/* SPDX-License-Identifier: MIT
 *
 * kernel.h - the contract between the scheduler and the kernels.  Whoever adds an instruction set needs no other file.
 *
 * A kernel is a table of functions for one operation, one compute type T (float or double) and one instruction set.  It is
 * one line in kernels.def and one object with the same name as its file and its symbol.
 *
 * Everything works on a tile of queries in the transposed form: queries lie in the lanes of vectors, so maxima, sums, rescaling and
 * masks are vertical, and keys and values are read by broadcast from their natural rows.
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

/* A block of a caller's mask or bias: element (i, j) of the tile at base + (i*stride_q + j*stride_k) elements. */
typedef struct attn_block {
    const void *base;
    attn_dtype dtype;
    int64_t stride_q;
    int64_t stride_k;
} attn_block;

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

    /* S[j][lane] = sum_c K[j][c] * Qt[c][lane], and block_max[lane] = max_j S[j][lane] (a NaN score may or may not enter).
     * n >= 1; dim may be 0.  `next` is what the caller will read soon (the block's values), n rows of next_ld: a hint for
     * prefetching, never NULL, never dereferenced. */
    void (*score)(int width, int64_t n, int64_t dim, const void *Qt, const void *K, int64_t ldk, void *S, void *block_max,
                  const void *next, int64_t next_ld);

    /* The modifiers.  A dropped score becomes exactly -infinity, whatever it was (NaN too).  They leave block_max stale: the
     * scheduler calls block_max after the last one.  Lanes past rows go on repeating the last real query. */

    /* Keeps S[j][lane] iff low[lane] <= j < high[lane]; 0 <= low, high <= n.  Causal, window and lengths all come as this.
     * low and high have width*lanes entries; lanes past rows repeat the last real one. */
    void (*keep_range)(int width, int64_t n, void *S, const int32_t *low, const int32_t *high);
    /* Drops where the byte is 0.  scratch: T[tile_q * (n rounded up to lanes)]. */
    void (*keep_mask)(int width, int64_t rows, int64_t n, void *S, const attn_block *mask, void *scratch);
    /* S += bias, one rounding; -infinity drops.  scratch as above. */
    void (*add_bias)(int width, int64_t rows, int64_t n, void *S, const attn_block *bias, void *scratch);
    /* block_max[lane] = max_j S[j][lane]. */
    void (*block_max)(int width, int64_t n, const void *S, void *block_max);

    /* m = the lowest finite number of T, l = 0, Ot = 0. */
    void (*clear)(int width, int64_t dim_v, void *m, void *l, void *Ot);

    /*
     * One step of the online softmax (Milakov and Gimelshein 2018, algorithm 3), per lane, all in natural units:
     *
     *      m' = block_max if block_max > m + 5.5 else m     (lazy: l and Ot may grow by e^5.5 before they are rescaled)
     *      S  = exp(S - m');   l = exp(m-m') l + sum_j S_j;   Ot = exp(m-m') Ot + sum_j S_j V_j;   m = m'
     *
     * m' is a score, and the difference is taken before any product, so scores of any size (a row of -FLT_MAX too) keep their
     * weights.  -infinity gives exactly 0, and so does what would be below the smallest normal number.  NaN stays NaN, with any
     * payload.  `next`: n rows that the caller will read soon, as in score.
     */
    void (*fold)(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const void *V, int64_t ldv, void *m, void *l,
                 void *Ot, const void *next, int64_t next_ld);
    /* The same, but a key whose score is -infinity contributes nothing even where its value is NaN or infinite (0 * NaN in fold).
     * Slow; the scheduler repeats a tile with it when Ot came out not finite and keys were dropped inside visited blocks.
     * scratch: T[n * tile_q]. */
    void (*fold_careful)(int width, int64_t n, int64_t dim_v, void *S, const void *block_max, const void *V, int64_t ldv, void *m,
                         void *l, void *Ot, void *scratch);
    /* 1 if any real lane of Ot is NaN or infinite. */
    int (*not_finite)(int width, int64_t rows, int64_t dim_v, const void *Ot);

    /* o[i][:] = Ot[:][i] / l[i], or 0 where l is 0; rounded once to `dtype`.  lse[i*lse_stride] = ln2 * m[i] + log(l[i]), -infinity
     * where l is 0; skipped if lse is NULL (lse has type T).  Writes `rows` rows. */
    void (*finish)(int width, int64_t rows, int64_t dim_v, const void *m, const void *l, const void *Ot, void *o, attn_dtype dtype,
                   int64_t stride, void *lse, int64_t lse_stride);

    /* w[i*stride + j] = exp(S[j][i] - m[i]) / l[i], or 0 where l is 0, for `rows` queries and n keys; rounded once to
     * `dtype`. S is used up.  scratch as for the modifiers. */
    void (*store_weights)(int width, int64_t rows, int64_t n, void *S, const void *m, const void *l, void *w, attn_dtype dtype,
                          int64_t stride, void *scratch);
} attn_fwd_kernel;

/* A row of kernels.def. */
typedef struct attn_kernel_row {
    const char *name;
    attn_op op;
    attn_dtype compute;
    attn_isa isa;
    uint32_t needs; /* ATTN_CPU_ bits of base/cpu.h */
    const attn_fwd_kernel *forward;
} attn_kernel_row;

/* Rows in order of preference; NULL past the last. */
const attn_kernel_row *attn_kernel_at(int index);

#endif
