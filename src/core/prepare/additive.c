/* SPDX-License-Identifier: MIT
 * additive.c - w of additive scores before the walk, and its gradient after it. */
#include "additive.h"

#include "broadcast_sum.h"

#include <math.h>

#include "../base/element.h"
#include "../base/names.h"
#include "../gradient/split_sums.h"

int attn_additive_problem(attn_resolved *prepared, attn_dtype compute)
{
    attn_score *score = &prepared->score;
    const int64_t hidden = prepared->shape.dim_qk;
    if (hidden > INT64_MAX / 64) return 0; /* its rows are a few times that long */
    if (score->scale_kind == ATTN_SCALE_DEFAULT) score->scale_kind = ATTN_SCALE_VALUE;
    prepared->at.score_matrix =
        (attn_layout){compute, {0, attn_matrix_per_head(prepared) ? attn_additive_weights(hidden) : 0, 0, 1}};
    return 1;
}

/* The power of two that brings the largest weight to 1/2 .. 1, so that products of weights and exponentials stay in their range. */
static double power_of(const attn_resolved *p, const void *w, int64_t head)
{
    const attn_layout *layout = &p->at.score_matrix;
    double most = 0;
    int exponent = 0;
    for (int64_t a = 0; a < p->shape.dim_qk; a++)
        most = fmax(most, fabs(attn_element_get(w, layout->dtype, head * layout->stride[1] + a * layout->stride[3])));
    if (most > 0 && most < INFINITY) (void)frexp(most, &exponent);
    return ldexp(1, exponent < -100 ? -100 : exponent > 100 ? 100 : exponent);
}

void attn_additive_scale_weights(const attn_resolved *p, attn_dtype compute, const void *w, void *to)
{
    const attn_layout *layout = &p->at.score_matrix;
    const int64_t hidden = p->shape.dim_qk, *stride = layout->stride;
    for (int64_t h = 0; h < (attn_matrix_per_head(p) ? p->shape.heads_q : attn_min(p->shape.heads_q, 1)); h++) {
        const int64_t at = h * attn_additive_weights(hidden);
        const double power = power_of(p, w, h);
        double sum = 0;
        for (int64_t a = 0; a < hidden; a++) {
            const int64_t from = h * stride[1] + a * stride[3];
            const double weight = attn_element_get(w, layout->dtype, from) / power;
            const double bias = p->score.additive_bias ? attn_element_get(w, layout->dtype, from + stride[2]) : 0;
            attn_real_put(to, compute, at + a, weight);
            attn_real_put(to, compute, at + hidden + a, bias);
            sum += weight;
        }
        attn_real_put(to, compute, at + 2 * hidden, sum);
        attn_real_put(to, compute, at + 2 * hidden + 1, power);
    }
}

/* Element k of the sums of head h, over batch entries in order. */
static double sum_of_head(const attn_walk *walk, char *shared, int64_t h, int64_t k)
{
    double sum = 0;
    for (int64_t b = 0; b < walk->problem.shape.batch; b++) {
        const double *own = attn_weight_sums_at(walk, shared, b * walk->problem.shape.heads_q + h);
        sum += own ? own[k] : 0;
    }
    return sum;
}

typedef struct weights_of_heads {
    const attn_walk *walk;
    const attn_args *args;
    char *shared;
} weights_of_heads;

static double gradient_of_weight(const void *context, int64_t h, int64_t r, int64_t k)
{
    const weights_of_heads *c = context;
    return attn_head_scale(c->walk, c->args, h) * sum_of_head(c->walk, c->shared, h, r * c->walk->problem.shape.dim_qk + k);
}

static void store_weights(const attn_walk *walk, const attn_args *args, char *shared)
{
    const attn_resolved *p = &walk->problem;
    const weights_of_heads context = {walk, args, shared};
    const int64_t size[3] = {p->shape.heads_q, p->score.additive_bias ? 2 : 1, p->shape.dim_qk};
    attn_broadcast_sum(&p->at.grad_score_matrix, args->grad_score_matrix, attn_matrix_per_head(p), size, gradient_of_weight,
                       &context);
}

/* x = sum_a w_a t_a, so sum dx x = sum_a w_a dw_a. */
static double scale_of_head(const attn_walk *walk, const attn_args *args, char *shared, int64_t h)
{
    const void *w = attn_head_weights(walk, args, h);
    const int64_t hidden = walk->problem.shape.dim_qk;
    const double power = attn_real_at(w, walk->compute, 2 * hidden + 1);
    double sum = 0;
    for (int64_t a = 0; a < hidden; a++) sum += power * attn_real_at(w, walk->compute, a) * sum_of_head(walk, shared, h, a);
    return sum / walk->problem.score.temperature;
}

void attn_additive_sum(const attn_walk *walk, const attn_args *args, char *shared)
{
    const attn_resolved *p = &walk->problem;
    if (p->has.grad_score_matrix) store_weights(walk, args, shared);
    for (int64_t h = 0; p->has.grad_scale && h < p->shape.heads_q && p->shape.batch > 0; h++)
        attn_head_sums_at(walk, shared, h)->scale = scale_of_head(walk, args, shared, h);
}
