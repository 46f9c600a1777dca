/* SPDX-License-Identifier: MIT
 *
 * softmax.h - a part of a kernel: the online softmax, between the two products of a tile.
 */
#ifndef ATTN_KERNELS_PART_SOFTMAX_H
#define ATTN_KERNELS_PART_SOFTMAX_H

#include "tile.h"

typedef struct attn_softmax_part {
    attn_tile_shape shape;

    /* Ot = 0; m = sink and l = 1, or, if sink is -infinity, m = the lowest finite number of T and l = 0. */
    void (*start)(int width, int64_t dim_v, double sink, void *m, void *l, void *Ot);

    /*
     * One step of the online softmax (Milakov and Gimelshein 2018, algorithm 3), per lane, all in natural units:
     *
     *      m' = block_max if block_max > m + 5.5 else m     (lazy: l and Ot may grow by e^5.5 before they are rescaled)
     *      S  = exp(S - m');   factor = exp(m - m');   l = factor l + sum_j S_j;   m = m'
     *
     * and `values` of attn_product_part then sets Ot = factor Ot + sum_j S_j V_j.
     *
     * m' is a score, and the difference is taken before any product, so scores of any size (a row of -FLT_MAX too) keep their
     * weights.  -infinity gives exactly 0, and a weight below the smallest normal number stays below it, or is 0.  NaN stays NaN,
     * with any payload.  factor is exactly 1 in lanes whose m stays.  drop: NULL, or the S_j to clear afterwards (l includes them).
     */
    void (*exponentiate)(int width, int64_t n, void *S, const void *block_max, const attn_drop *drop, void *m, void *l,
                         void *factor);
    /* m, l and Ot absorb the state of other keys: the larger m is kept, both sides are scaled to it. */
    void (*merge)(int width, int64_t dim_v, const void *m_other, const void *l_other, const void *Ot_other, void *m, void *l,
                  void *Ot);
    /* 1 if any real lane of Ot is NaN or infinite. */
    int (*not_finite)(int width, int64_t rows, int64_t dim_v, const void *Ot);

    /* empty[i] = 1 where l is 0, else 0, for width*lanes lanes; returns 1 if any is. */
    int (*find_empty)(int width, int64_t rows, const void *l, int32_t *empty);

    /* o[i][:] = Ot[:][i] * (keep / l[i]), or 0 where l is 0; rounded once to `dtype`.  lse[i*lse_stride] = m[i] + log(l[i]),
     * -infinity where l is 0; skipped if lse is NULL (lse has type T).  Writes `rows` rows. */
    void (*finish)(int width, int64_t rows, int64_t dim_v, double keep, const void *m, const void *l, const void *Ot, void *o,
                   attn_dtype dtype, int64_t stride, void *lse, int64_t lse_stride);
} attn_softmax_part;

#endif
