/* SPDX-License-Identifier: MIT
 *
 * gate.h - a part of a kernel: linear attention with a gate per channel, and the delta rule, in chunks.
 */
#ifndef ATTN_KERNELS_PART_GATE_H
#define ATTN_KERNELS_PART_GATE_H

#include "tile.h"

typedef struct attn_gate_part {
    attn_tile_shape shape;

    /* X = exp(X), kept finite. */
    void (*gates)(int64_t n, int64_t dim, void *X, int64_t ld);
    /* out_i = X_i times gates_0 .. gates_i (after: gates_(i+1) .. gates_(n-1)); total: the product of all gates.  Whole
     * vectors. */
    void (*decay_rows)(int64_t n, int64_t dim, const void *X, const void *gates, int64_t ld, int after, void *out, void *total);
    /*
     * S[r][lane] = sum_c Xt[c][lane] rows[r][c] times the gates of channel c of the tokens r+1 .. first+lane, if r + strict <=
     * first + lane, else 0; reverse: of the tokens first+lane+1 .. r, if r >= first + lane + strict.  Leaves Xt times all gates of
     * the tokens 0 .. first+lane; reverse: first+lane+1 .. n-1.
     */
    void (*score_gated)(int width, int64_t n, int64_t dim, void *Xt, const void *rows, const void *gates, int64_t ld, int64_t first,
                        int strict, int reverse, void *S);
    /* Gt[c][lane] times the gates that Xt is left with, plus sum_r S[r][lane] rows[r][c] times the gates in the definition of S. */
    void (*add_gated)(int width, int64_t n, int64_t dim, const void *S, const void *rows, const void *gates, int64_t ld,
                      int64_t first, int reverse, void *Gt);
    /* W_i = V_i - X_i - sum_(j<i) S[j][i] U_j;  U_i = beta_i W_i. */
    void (*solve)(int64_t n, int64_t dim, const void *S, const void *X, const void *V, int64_t ldv, const void *beta, void *W,
                  void *U, int64_t ld);
#ifndef ATTN_INFERENCE_ONLY /* base/inference.h */
    /* From the last row back: dU_j += sum_(i>j) S[i][j] N_i;  N_j = -beta_j dU_j. */
    void (*solve_back)(int64_t n, int64_t dim, const void *S, void *dU, const void *beta, void *N, int64_t ld);
#endif
    /* Z += sign X Y, elementwise. */
    void (*add_multiplied)(int64_t n, int64_t dim, double sign, const void *X, int64_t ldx, const void *Y, int64_t ldy, void *Z,
                           int64_t ldz);
    /* X_i = last + X_i + .. + X_(n-1), summed in double. */
    void (*sums_from)(int64_t n, int64_t dim, const void *last, void *X, int64_t ld);
} attn_gate_part;

#endif
