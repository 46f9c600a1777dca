/* SPDX-License-Identifier: MIT
 *
 * rule.c - scores and visibility of one pair, by the definition in attn.h. */
#include "rule.h"

#include <math.h>

static int is_float(attn_dtype dtype)
{
    return dtype == ATTN_DTYPE_DEFAULT || dtype == ATTN_F32 || dtype == ATTN_F64 || dtype == ATTN_F16 || dtype == ATTN_BF16;
}

int view_rule_can(const attn_problem *p, const attn_tensors *t)
{
    const void *const others[] = {t->mask.data,          t->bias.data,         t->ranges.data,     t->block_mask.data,
                                  t->block_starts.data,  t->block_index.data,  t->page_table.data, t->page_index.data,
                                  t->k_scale.data,       t->score_matrix.data, t->bias_table.data, t->tree.data,
                                  t->relative_keys.data, t->relative_u.data,   t->relative_v.data, t->cu_seqlens_q.data,
                                  t->cu_seqlens_kv.data};
    for (size_t k = 0; k < sizeof others / sizeof *others; k++)
        if (others[k]) return 0;
    const int softmax = p->score.normaliser == ATTN_NORMALISER_SOFTMAX || p->score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE;
    return p->score.kind == ATTN_SCORE_DOT && softmax && p->mask.empty == ATTN_EMPTY_ZERO && is_float(t->q.dtype) &&
           is_float(t->k.dtype) && p->shape.dim_qk > 0;
}

double view_rule_score(const view_rule *rule, int64_t heads, int64_t layer, int64_t head, int64_t i, int64_t j, const float *q,
                       const float *k)
{
    double sum = 0;
    for (int64_t c = 0; c < rule->dim; c++) sum += (double)q[c] * (double)k[c];
    double score = rule->scale[head] * sum;
    if (rule->softcap > 0) score = rule->softcap * tanh(score / rule->softcap);
    if (rule->slopes) score -= rule->slopes[layer * heads + head] * fabs((double)(rule->position + i - j));
    return score;
}

static int64_t floor_ratio(int64_t a, int64_t b) { return a / b - (a % b < 0); }

static int in_window(const attn_mask *mask, int64_t p, int64_t j)
{
    if (j < mask->global_kv || (p >= 0 && p < mask->global_q)) return 1;
    if (mask->window && mask->window_left >= 0 && p - j > mask->window_left) return 0;
    if (mask->window && mask->window_right >= 0 && j - p > mask->window_right) return 0;
    return mask->dilation <= 1 || (p - j) % mask->dilation == 0;
}

int view_rule_sees(const view_rule *rule, int64_t i, int64_t j)
{
    const attn_mask *mask = &rule->mask;
    const int64_t p = rule->position + i, apart = p < j ? j - p : p - j;
    if (mask->causal && j > p) return 0;
    if (mask->chunk > 0 && floor_ratio(j, mask->chunk) != floor_ratio(p, mask->chunk)) return 0;
    return apart >= mask->least_distance && in_window(mask, p, j);
}
