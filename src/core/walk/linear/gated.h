/* SPDX-License-Identifier: MIT
 *
 * gated.h - chunks of linear attention with a decay per channel or the delta rule.  Whatever reads the state is a reader:
 * the queries of each head of the group, and, by the delta rule, the keys themselves, which read what comes before them ("strict").
 *
 *      what reader i gets     O_i = (F_i prod_(m<=i) gate_m) S + sum_(j<=i) P_ij u_j
 *                             P_ij = sum_c F_ic k_jc prod_(j<m<=i) gate_mc
 *      by the delta rule      W_i = v_i - O_i of key i, strict (j < i), and u_i = beta_i W_i; else u_i = v_i
 *      after the chunk        S = diag(prod gate) S + sum_j (k_j prod_(m>j) gate_m) u_j^T
 *
 * (Yang et al. 2024, "Parallelizing linear transformers with the delta rule", section 3.2.)  Products of gates per channel run
 * along the tokens; those of one decay per head are exp of differences of sums, as in chunk.h.  A denominator is one more
 * channel of the values, of ones.
 */
#ifndef ATTN_WALK_LINEAR_GATED_H
#define ATTN_WALK_LINEAR_GATED_H

#include "chunk.h"

typedef struct attn_linear_gated {
    attn_linear_chunk chunk;
    void *gates;   /* [n][ld_f]: of a decay per channel, else NULL */
    void *beta;    /* [n], delta rule */
    void *W;       /* [n][ld_v], delta rule */
    const void *U; /* [n][ld_v]: what enters the state */
} attn_linear_gated;

/* Loads keys, values and gates; then solves for what they write, which depends on the state before them. */
attn_linear_gated attn_linear_gated_at(const attn_linear_head *head, int64_t first, int64_t n);
void attn_linear_gated_solve(const attn_linear_head *head, attn_linear_gated *g, const void *state);

/* Moves S past the chunk. */
void attn_linear_gated_absorb(const attn_linear_head *head, const attn_linear_gated *g, void *state);
/* state = diag(prod gate) state, once scratch.total has the products. */
void attn_linear_gated_decay(const attn_linear_head *head, const attn_linear_gated *g, void *state);

/* X [dim][tile_q] *= exp(shift + sign c_i) of the tile at token `at`, in each lane; nothing without a decay per head. */
void attn_linear_gated_lanes(const attn_linear_head *head, const attn_linear_gated *g, int64_t at, int64_t rows, double shift,
                             double sign, int64_t dim, void *X);

/* Load and store states with a denominator's sum as their last channel. */
void attn_linear_gated_load(const attn_linear_head *head, int which, void *S);
void attn_linear_gated_store(const attn_linear_head *head, const void *S, int which);

#endif
