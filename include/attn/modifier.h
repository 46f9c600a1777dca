/* SPDX-License-Identifier: MIT
 *
 * modifier.h - the caller's own change of scores, as functions that the walk over tiles calls: a new bias, cap or mask without a
 * matrix of len_q * len_kv and without touching libattn.  docs/mechanisms/modifier.md has an example.
 */
#ifndef ATTN_MODIFIER_H
#define ATTN_MODIFIER_H

#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tile of queries and keys of one head, all numbered as in the whole problem where the call has an origin.  Query first_q + i and
 * key first_kv + j have element [j*stride + i] of each array; i below `queries` and j below `keys` are all that may be touched. */
typedef struct attn_score_tile {
    int64_t batch, head; /* of the queries */
    int64_t first_q, queries;
    int64_t first_kv, keys;
    int64_t position; /* query first_q + i stands at key position + i (attn_align) */
    attn_dtype dtype; /* of the arrays: the compute type, f32 or f64 */
    int64_t stride;
    void *scores;
    void *slopes;          /* modify_slopes only */
    const void *gradients; /* modify_slopes in ATTN_BACKWARD only */
    int again;             /* 1: these pairs were given before in this call; what is summed over pairs must leave them out */
} attn_score_tile;

/*
 * s_ij = f(s_ij, b, h, i, j), after scale and softcap and before biases and masks.
 *
 *      modify_scores(context, tile)    scores become f of themselves; -infinity drops the key
 *      modify_slopes(context, tile)    slopes = the derivative of f by s, at `scores` as modify_scores was given them, which stay.
 *                                      ATTN_BACKWARD and ATTN_JVP
 *
 * f is a function of the score and its indices alone: which pairs come together in a tile depends on the kernel, and a pair may
 * come any number of times.  Pairs that a mask drops come too, with any number for a score (NaN too); what f makes of them reaches
 * nothing.
 *
 * Parameters of f: `gradients` holds the gradient of each f(s_ij), 0 where the query does not see the key, in ATTN_BACKWARD, and
 * each pair that is not 0 comes exactly once without `again`.  So sum_ij gradients_ij df/dparameter is the parameter's gradient.
 *
 * Threads: the functions are called by the threads that compute, several at once and in any order, for different tiles.  They may
 * read shared data and write their tile; whatever else they write they guard themselves.  A sum under a lock is right, but its last
 * bits depend on the order; with a place for each (batch, head, first_q) they do not.
 */
typedef void attn_modify_tile(void *context, const attn_score_tile *tile);

#ifdef __cplusplus
}
#endif

#endif
