/* SPDX-License-Identifier: MIT
 *
 * modifier.h - custom modification of scores, by callbacks on tiles: a new bias, cap or mask without a matrix of len_q * len_kv and
 * without changing libattn.  docs/mechanisms/modifier.md has an example.
 */
#ifndef ATTN_MODIFIER_H
#define ATTN_MODIFIER_H

#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tile of queries and keys of one head, numbered as in the whole problem if the call has an origin.  Query first_q + i and key
 * first_kv + j have element [j*stride + i] of each array; only i < `queries` and j < `keys` may be accessed. */
typedef struct attn_score_tile {
    int64_t batch, head; /* of the queries */
    int64_t first_q, queries;
    int64_t first_kv, keys;
    int64_t position; /* query first_q + i has the position of key position + i (attn_align) */
    attn_dtype dtype; /* of the arrays: the compute type, f32 or f64 */
    int64_t stride;
    void *scores;
    void *slopes;          /* modify_slopes only */
    const void *gradients; /* modify_slopes in ATTN_BACKWARD only */
    int again;             /* 1: these pairs were passed before in this call; sums over pairs must skip them */
} attn_score_tile;

/*
 * s_ij = f(s_ij, b, h, i, j), after scale and softcap and before biases and masks.
 *
 *      modify_scores(context, tile)    replaces scores by f of them; -infinity masks the key
 *      modify_slopes(context, tile)    slopes = the derivative of f by s at `scores`, the input of modify_scores, left unchanged.
 *                                      ATTN_BACKWARD and ATTN_JVP
 *
 * f must depend on the score and its indices alone: how pairs are grouped into tiles depends on the kernel, and a pair may be
 * passed any number of times.  Masked pairs are passed too, with any number as a score, even NaN; what f makes of them is ignored.
 *
 * Parameters of f: in ATTN_BACKWARD `gradients` holds the gradient of each f(s_ij), 0 where the query does not see the key, and
 * each pair that is not 0 is passed exactly once without `again`.  So sum_ij gradients_ij df/dparameter is the parameter's
 * gradient.
 *
 * Threads: the computing threads call the functions, several at once and in any order, for different tiles.  The functions may read
 * shared data and write their tile; they must guard whatever else they write.  A sum under a lock is correct, but its last bits
 * depend on the order; with one slot for each (batch, head, first_q) they do not.
 */
typedef void attn_modify_tile(void *context, const attn_score_tile *tile);

#ifdef __cplusplus
}
#endif

#endif
