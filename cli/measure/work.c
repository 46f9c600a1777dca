/* SPDX-License-Identifier: MIT
 * work.c - counts visible pairs, query by query, as attn_mask defines them. */
#include "work.h"

#include "testing/problem/problem.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* n / by, rounded down for negative n too */
static int64_t floor_divide(int64_t n, int64_t by) { return n / by - (n % by < 0); }

static int64_t between(int64_t first, int64_t last) { return most(0, last - first + 1); }

static int64_t keys_of(const attn_mask *mask, int64_t position, int64_t len_kv)
{
    int64_t first = 0, last = len_kv - 1;
    if (mask->causal) last = least(last, position);
    if (mask->chunk > 0) {
        const int64_t begin = floor_divide(position, mask->chunk) * mask->chunk;
        first = most(first, begin);
        last = least(last, begin + mask->chunk - 1);
    }
    if (position >= 0 && position < mask->global_q) return between(first, last);
    int64_t near = first, end = last;
    if (mask->window && mask->window_left >= 0) near = most(first, position - mask->window_left);
    if (mask->window && mask->window_right >= 0) end = least(last, position + mask->window_right);
    const int64_t global = least(last, mask->global_kv - 1);
    return between(near, end) + between(first, global) - between(near, least(end, global));
}

double visible_pairs(const attn_problem *problem, const int64_t *lengths_q, const int64_t *lengths_kv, const int64_t *offsets)
{
    const attn_shape *s = &problem->shape;
    double pairs = 0;
    for (int64_t b = 0; b < s->batch; b++) {
        const int64_t len_q = lengths_q ? lengths_q[b] : s->len_q, len_kv = lengths_kv ? lengths_kv[b] : s->len_kv;
        const int64_t offset = problem->mask.align == ATTN_ALIGN_BOTTOM_RIGHT ? len_kv - len_q : offsets ? offsets[b] : 0;
        for (int64_t i = 0; i < len_q; i++)
            pairs += (double)keys_of(&problem->mask, i + offset, most(0, len_kv - problem->mask.tree_keys));
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
