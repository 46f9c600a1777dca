/* SPDX-License-Identifier: MIT
 * differences.c - backward against central differences of the library's own forward. */
#include "test.h"

#include "differences.h"
#include "outcome.h"

#include <math.h>

/* <dO, O> + <dlse, lse> over existing rows; a normaliser without a denominator has no gradient through lse. */
static double loss_of(combination *c)
{
    const int has_lse = c->problem.score.normaliser < ATTN_NORMALISER_SIGMOID;
    double loss = 0;
    assert_true(combination_forward(c, ATTN_ISA_DEFAULT));
    tensor_read(&c->of[TENSOR(o)]);
    tensor_read(&c->of[TENSOR(lse)]);
    for (int64_t i = 0; i < c->ref.B * c->ref.Hq * c->ref.Sq * c->ref.Dv; i++)
        loss += c->of[TENSOR(grad_o)].value[i] * c->of[TENSOR(o)].value[i];
    for (int64_t i = 0; has_lse && i < c->ref.B * c->ref.Hq * c->ref.Sq; i++)
        if (isfinite(c->of[TENSOR(lse)].value[i])) loss += c->of[TENSOR(grad_lse)].value[i] * c->of[TENSOR(lse)].value[i];
    return loss;
}

typedef struct input {
    tensor *x;        /* NULL: not changed */
    double *old, *to; /* original values, and the direction */
} input;

static void move(const input *in, double step)
{
    for (int64_t at = 0; at < in->x->count; at++) tensor_set(in->x, at, in->old[at] + step * in->to[at]);
}

static double loss_at(combination *c, const input *in, double step)
{
    for (int i = 0; i < TENSORS; i++)
        if (in[i].x) move(&in[i], step);
    return loss_of(c);
}

/* Fourth order: truncation is far below rounding. */
static double difference(combination *c, const input *in, double step)
{
    double near = (loss_at(c, in, step) - loss_at(c, in, -step)) / (2 * step);
    double far = (loss_at(c, in, 2 * step) - loss_at(c, in, -2 * step)) / (4 * step);
    return (4 * near - far) / 3;
}

/* Adds <gradient, direction> to *sum, and the sum of absolute terms to *size.  Gradient and input have the same layout: on an axis
 * that the input broadcasts, the gradient has size 1. */
static void expect(const tensor *gradient, const input *in, double *sum, double *size)
{
    for (int64_t at = 0; at < in->x->count; at++) {
        double term = tensor_get(gradient, at) * in->to[at];
        *sum += term;
        *size += fabs(term);
    }
}

/* The gradient of tensor t; NULL if there is none. */
static const output *gradient_of(const outcome *out, int t)
{
    for (int i = 0; i < out->count; i++)
        if (tensors_about(out->of[i].tensor)->gradient_of == t) return &out->of[i];
    return NULL;
}

double differences_off_by(combination *c, uint64_t seed, int only)
{
    outcome out = outcome_make(c, ATTN_BACKWARD);
    random_state random = random_from(seed);
    /* ReLU and the modifier of combinations have kinks: the step is so short that hardly any score crosses one. */
    const int corners = c->problem.score.normaliser == ATTN_NORMALISER_RELU || c->call.modify_scores;
    const double step = corners ? 1e-6 : 1e-4, tolerance = corners ? 1e-6 : 1e-7;
    input in[TENSORS] = {{NULL, NULL, NULL}};
    double expected = 0, size = 0;
    int any = 0;
    assert_true(outcome_run(c, &out, ATTN_ISA_DEFAULT, 2));
    for (int i = 0; i < TENSORS; i++) {
        const output *gradient = gradient_of(&out, i);
        tensor *x = &c->of[i];
        if (!gradient || !x->memory || x->layout.dtype != ATTN_F64 || (only != DIFFERENCES_ALL && only != i)) continue;
        any = 1;
        in[i] = (input){x, calloc((size_t)x->count + 1, sizeof(double)), calloc((size_t)x->count + 1, sizeof(double))};
        assert_true(in[i].old && in[i].to);
        for (int64_t at = 0; at < x->count; at++) {
            in[i].old[at] = tensor_get(x, at);
            in[i].to[at] = isfinite(in[i].old[at]) ? random_signed(&random) : 0;
        }
        expect(&gradient->got, &in[i], &expected, &size);
    }
    double off = any ? fabs(difference(c, in, step) - expected) / (tolerance * (1 + size)) : -1;
    for (int i = 0; i < TENSORS; i++) {
        if (in[i].x) move(&in[i], 0);
        free(in[i].old), free(in[i].to);
    }
    outcome_free(c, &out);
    return isnan(off) ? INFINITY : off;
}
