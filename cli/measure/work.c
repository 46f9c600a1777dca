/* SPDX-License-Identifier: MIT
 * work.c - counts visible pairs, query by query, as attn_mask defines them. */
#include "work.h"

#include "seen.h"
#include "testing/problem/problem.h"

double visible_pairs(const attn_problem *problem, const attn_tensors *tensors, const int64_t *lengths_q, const int64_t *lengths_kv,
                     const int64_t *offsets)
{
    const attn_shape *s = &problem->shape;
    double pairs = 0;
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t len_q = lengths_q ? lengths_q[b] : s->len_q, len_kv = lengths_kv ? lengths_kv[b] : s->len_kv;
        const int64_t offset = problem->mask.align == ATTN_ALIGN_BOTTOM_RIGHT ? len_kv - len_q : offsets ? offsets[b] : 0;
        const int64_t drafts = problem->mask.tree_keys;
        const seen_rules rules = seen_rules_of(problem, tensors, len_kv > drafts ? len_kv - drafts : 0);
        for (int64_t i = 0; i < len_q; i++) pairs += seen_count(&rules, i, i + offset);
    }
    return pairs * (double)s->heads_q;
}

double problem_flops(const attn_problem *problem, double pairs)
{
    /* Products of the width of a key, and of a value, for each pair: jvp has three of a score and its tangent, and two sums; bwd2
     * the same, two gradients of weights, and the sums of five gradients. */
    static const struct {
        double key, value;
    } products[] = {[ATTN_FORWARD] = {1, 1}, [ATTN_BACKWARD] = {2.5, 2.5}, [ATTN_JVP] = {3, 2}, [ATTN_DOUBLE_BACKWARD] = {7, 5}};
    const double keys = products[problem->op].key * (double)problem_dim_k(problem),
                 values = products[problem->op].value * (double)problem->shape.dim_v;
    return 2 * (keys + values) * pairs;
}
