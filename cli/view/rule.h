/* SPDX-License-Identifier: MIT
 *
 * rule.h - how the page computes weights from the queries and keys that are in it: the same function as script/scores.js. */
#ifndef ATTN_CLI_VIEW_RULE_H
#define ATTN_CLI_VIEW_RULE_H

#include "attn/attn.h"

/* Which rotary positions q and k have. */
typedef struct view_rotation {
    enum { VIEW_ROTATION_NONE, VIEW_ROTATION_OF_BASE, VIEW_ROTATION_OTHER } kind; /* not by the command; by `base`; otherwise */
    double base;
    int64_t channels;
    int halves; /* pairs of channels are halves, not neighbours */
} view_rotation;

/* weight_ij = exp(score_ij - lse_i) where query i sees key j, else 0;
 * score_ij = softcap(scale q_i k_j) - slope |position + i - j|. */
typedef struct view_rule {
    int64_t dim;
    attn_dtype dtype;     /* of q and k in the page: f32, or f16 */
    int64_t groups;       /* key heads in the page */
    const int64_t *group; /* [heads] which of them a head reads */
    const double *scale;  /* [heads], divided by the temperature */
    double softcap;       /* 0: none */
    const double *slopes; /* [layers][heads]; NULL: none */
    const double *sinks;  /* [heads] a score in each denominator that has no key; NULL: none */
    view_rotation rotation;
    attn_mask mask;   /* causal, window, dilation, chunk, global tokens, least distance */
    int64_t position; /* of the first row among the keys */
} view_rule;

/* 1 if a page can compute the weights of this problem: dot products, a softmax, and masks that are rules. */
int view_rule_can(const attn_problem *problem, const attn_tensors *tensors);

/* `layer` and `head` are indices of those in the page, i of its rows. */
double view_rule_score(const view_rule *rule, int64_t heads, int64_t layer, int64_t head, int64_t i, int64_t j, const float *q,
                       const float *k);
int view_rule_sees(const view_rule *rule, int64_t i, int64_t j);

#endif
