/* SPDX-License-Identifier: MIT
 * tokens.h - a run of tokens for the recurrent walks: what is loaded at once, and one token of it. */
#ifndef ATTN_WALK_LINEAR_TOKENS_H
#define ATTN_WALK_LINEAR_TOKENS_H

#include "../../base/element.h"
#include "../../base/names.h"
#include "linear.h"

typedef struct attn_linear_run {
    int64_t first, n;
    void *Kf; /* [n][ld_f]; the queries' features lie in scratch.Qf */
    const void *V;
    int64_t ldv;
    void *gates; /* [n][1 or dim_f]: decays; NULL for none */
    int gate_channels;
} attn_linear_run;

attn_linear_run attn_linear_run_at(const attn_linear_head *head, int64_t first, int64_t n);

/* Token j of a run, on state S; y and u are scratch. */
attn_token attn_linear_token_at(const attn_linear_head *head, const attn_linear_run *run, int64_t j, void *S, int64_t ld);

/*
 * The low-rank rule is two tokens without it: the first decays, with write_t as its key and what the state returned for erase_t as
 * its value; the second does not decay, with the token's own key and value.  On entry `second` is the whole token, on the
 * state before it.
 */
typedef struct attn_linear_pair {
    attn_token first;
    void *erase; /* [dim_f] */
} attn_linear_pair;
attn_linear_pair attn_linear_pair_at(const attn_linear_head *head, int64_t token, attn_token *second);

/* Updates t.S with token `token`; t.y is then what it returns for t.q. */
void attn_linear_take(const attn_linear_head *head, int64_t token, attn_token *t);

/* Features of token j's query of head k of the group. */
static inline void *attn_linear_run_query(const attn_linear_head *head, int64_t k, int64_t j)
{
    const attn_linear_walk *w = head->walk;
    return (char *)attn_linear_part(head, w->scratch.Qf) + (k * w->chunk + j) * w->ld_f * (int64_t)attn_dtype_bytes(w->compute);
}

static inline double attn_linear_beta(const attn_linear_head *head, int64_t t)
{
    const attn_layout *layout = &head->walk->problem.at.beta;
    return attn_element_get(attn_linear_row(head, head->args->beta, layout, head->g, t), layout->dtype, 0);
}

#endif
