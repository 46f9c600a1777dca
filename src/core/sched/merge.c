/* SPDX-License-Identifier: MIT
 * merge.c - row by row, in double: the work is a few operations an element, and the memory is what takes the time. */
#include "merge.h"

#include <math.h>

#include "../base/element.h"

typedef struct row {
    int64_t o, lse; /* element of the row's first channel, and of its lse */
} row;

static row row_at(const attn_merge_problem *p, int64_t b, int64_t h, int64_t i)
{
    const int64_t *so = p->o.stride, *sl = p->lse.stride;
    row r = {b * so[0] + h * so[1] + i * so[2], b * sl[0] + h * sl[1] + i * sl[2]};
    return r;
}

/* lse of all parts of a row together. */
static double lse_of(const attn_merge_call *c, row r)
{
    const attn_merge_problem *p = &c->problem;
    double most = -INFINITY, sum = 0;
    for (int64_t part = 0; part < p->parts; part++) {
        double one = attn_element_get(c->lse_parts[part], p->lse.dtype, r.lse);
        if (!(one <= most)) most = one; /* NaN too */
    }
    if (most == -INFINITY) return most;
    for (int64_t part = 0; part < p->parts; part++) {
        double one = attn_element_get(c->lse_parts[part], p->lse.dtype, r.lse);
        if (one > -INFINITY || one != one) sum += exp(one - most);
    }
    return most + log(sum);
}

/* The weight of a part; 0 where it has no keys. */
static double weight_of(const attn_merge_call *c, row r, int64_t part, double lse)
{
    double one = attn_element_get(c->lse_parts[part], c->problem.lse.dtype, r.lse);
    return one == -INFINITY ? 0 : exp(one - lse);
}

static void merge_row(const attn_merge_call *c, row r)
{
    enum { CHANNELS = 64 }; /* at a time, so that a weight is computed once for many */
    const attn_merge_problem *p = &c->problem;
    double lse = lse_of(c, r), sum[CHANNELS];
    for (int64_t first = 0; first < p->dim_v; first += CHANNELS) {
        int64_t n = p->dim_v - first < CHANNELS ? p->dim_v - first : CHANNELS;
        for (int64_t k = 0; k < n; k++) sum[k] = 0;
        for (int64_t part = 0; part < p->parts; part++) {
            double w = weight_of(c, r, part, lse);
            if (w == 0) continue;
            for (int64_t k = 0; k < n; k++) sum[k] += w * attn_element_get(c->o_parts[part], p->o.dtype, r.o + first + k);
        }
        for (int64_t k = 0; k < n; k++) attn_element_put(c->o, p->o.dtype, r.o + first + k, sum[k]);
    }
    if (c->lse) attn_element_put(c->lse, p->lse.dtype, r.lse, lse);
}

/* grad_o . o_p; a part that weighs nothing is not read. */
static double inner(const attn_merge_call *c, row r, int64_t part)
{
    const attn_merge_problem *p = &c->problem;
    double sum = 0;
    for (int64_t k = 0; k < p->dim_v; k++)
        sum += attn_element_get(c->grad_o, p->o.dtype, r.o + k) * attn_element_get(c->o_parts[part], p->o.dtype, r.o + k);
    return sum;
}

static void merge_row_backward(const attn_merge_call *c, row r)
{
    const attn_merge_problem *p = &c->problem;
    double lse = lse_of(c, r), from_lse = c->grad_lse ? attn_element_get(c->grad_lse, p->lse.dtype, r.lse) : 0;
    double all = 0; /* grad_o . o */
    for (int64_t part = 0; part < p->parts; part++) {
        double w = weight_of(c, r, part, lse);
        if (w != 0) all += w * inner(c, r, part);
    }
    for (int64_t part = 0; part < p->parts; part++) {
        double w = weight_of(c, r, part, lse);
        double from_o = w == 0 ? 0 : w * (inner(c, r, part) - all + from_lse);
        for (int64_t k = 0; k < p->dim_v; k++)
            attn_element_put(c->grad_o_parts[part], p->o.dtype, r.o + k,
                             w == 0 ? 0 : w * attn_element_get(c->grad_o, p->o.dtype, r.o + k));
        attn_element_put(c->grad_lse_parts[part], p->lse.dtype, r.lse, from_o);
    }
}

static void each_row(const attn_merge_call *c, void (*run)(const attn_merge_call *c, row r))
{
    const attn_merge_problem *p = &c->problem;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->len_q; i++) run(c, row_at(p, b, h, i));
}

void attn_sched_merge(const attn_merge_call *call) { each_row(call, merge_row); }
void attn_sched_merge_backward(const attn_merge_call *call) { each_row(call, merge_row_backward); }
