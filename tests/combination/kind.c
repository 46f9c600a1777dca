/* SPDX-License-Identifier: MIT
 * kind.c - combinations with a score kind other than the dot product. */
#include "test.h"

#include "combination.h"

#include <math.h>

void combination_kind(combination *c, random_state *random, attn_score_kind kind)
{
    static const ref_kind kinds[] = {REF_DOT, REF_GENERAL, REF_METRIC, REF_COSINE, REF_DISTANCE, REF_ADDITIVE};
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_BF16, ATTN_F16};
    const int64_t D = c->ref.D;
    attn_score *score = &c->problem.score;
    int64_t shape[4] = {1, 1, D, D};
    score->kind = kind;
    c->ref.kind = kinds[kind];
    if (score->scale_kind == ATTN_SCALE_DEFAULT) c->ref.scale = 1;
    if (kind == ATTN_SCORE_COSINE || kind == ATTN_SCORE_DISTANCE) return;
    if (random_below(random, 2)) {
        c->ref.W_of_each_head = 1;
        shape[1] = c->ref.Hq;
    }
    if (kind == ATTN_SCORE_ADDITIVE) {
        score->additive_bias = random_below(random, 2) == 0;
        c->ref.R = shape[2] = 1 + score->additive_bias;
    } else if (random_below(random, 2)) {
        int64_t width = 1 + random_below(random, 40);
        if (kind == ATTN_SCORE_GENERAL) score->dim_k = c->ref.Dk = shape[3] = width;
        else score->dim_metric = c->ref.R = shape[2] = width;
    }
    attn_dtype dtype = random_below(random, 3) ? combination_compute(c) : types[random_below(random, 4)];
    tensor *w = &c->of[TENSOR(score_matrix)];
    *w = tensor_make(dtype, shape, random_below(random, 2) ? BY_TOKEN : BY_HEAD, 0, NULL);
    tensor_draw(w, random, 2 / sqrt((double)(D + 1)));
    combination_give(c, TENSOR(score_matrix));
    c->ref.W = w->value;
}
