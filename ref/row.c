/* SPDX-License-Identifier: MIT
 * row.c - scores and weights of one query, in the order of operations of docs/notation.md. */
#include "row.h"

#include <math.h>
#include <stdlib.h>

double row_capped(const ref_problem *p, const row *r, int64_t j, double raw, double *slope)
{
    double s = r->scale * raw;
    *slope = 1;
    if (p->softcap > 0) {
        double t = tanh(s / p->softcap);
        s = p->softcap * t;
        *slope = 1 - t * t;
    }
    if (p->modify) {
        double more;
        s = p->modify(p->modify_context, r->b, r->h, r->i, j, s, &more);
        *slope *= more;
    }
    return s;
}

double row_slope(const ref_problem *p, const row *r, int64_t j)
{
    double slope = 1;
    if (p->softcap > 0 || p->modify) row_capped(p, r, j, row_raw_score(p, r, j), &slope);
    return slope;
}

double row_score(const ref_problem *p, const row *r, int64_t j)
{
    double slope, s = row_capped(p, r, j, row_raw_score(p, r, j), &slope);
    if (p->bias) s += p->bias[r->index * p->Skv + j];
    if (p->slopes) s -= p->slopes[r->b * p->Hq + r->h] * fabs((double)(r->position - j));
    if (p->bias_table) s += p->bias_table[bias_table_at(p, r->h, r->position - j)];
    return s;
}

/* The sink of the row's head; -infinity without one. */
static double sink_of(const ref_problem *p, const row *r)
{
    if (p->normaliser == REF_BY_SOFTMAX_ONE) return 0;
    return p->sink ? p->sink[r->h] : -INFINITY;
}

/* Elementwise normalisers: each weight is a function of its own score; returns the log of the divisor. */
static double elementwise_weights(const ref_problem *p, const row *r, const double *s, double *w)
{
    double count = 0;
    for (int64_t j = 0; j < p->Skv; j++) count += ref_visible(p, r->b, r->h, r->i, j);
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!ref_visible(p, r->b, r->h, r->i, j)) continue;
        if (p->normaliser == REF_BY_SIGMOID) w[j] = 1 / (1 + exp(-s[j] - p->shift));
        else w[j] = s[j] < 0 ? 0 : s[j] / count;
    }
    return p->normaliser == REF_BY_SIGMOID ? 0 : log(count);
}

double row_weights(const ref_problem *p, const row *r, double *s, double *w)
{
    /* 1. Scores.  Invisible keys are never read. */
    int any = 0;
    const double sink = sink_of(p, r);
    double m = sink;
    for (int64_t j = 0; j < p->Skv; j++) {
        s[j] = -INFINITY;
        w[j] = 0;
        if (!ref_visible(p, r->b, r->h, r->i, j)) continue;
        any = 1;
        w[j] = 1; /* seen */
        s[j] = row_score(p, r, j);
        if (s[j] > m) m = s[j];
    }
    if (!any) { /* A query that sees no key: weights 0, or uniform. */
        int64_t alike = p->uniform == REF_UNIFORM_OWN && p->len_kv ? p->len_kv[r->b] : p->Skv;
        if (row_is_uniform(p, r))
            for (int64_t j = 0; j < alike; j++) w[j] = 1 / (double)alike;
        return row_is_live(p, r) ? sink : -INFINITY;
    }
    if (p->normaliser == REF_BY_SIGMOID || p->normaliser == REF_BY_RELU) return elementwise_weights(p, r, s, w);

    /* 2. Their exponentials, taken relative to the largest so that none overflows, and the sum of these. */
    double l = 0;
    for (int64_t j = 0; j < p->Skv; j++)
        if (w[j] > 0) l += w[j] = exp(s[j] - m);
    if (sink > -INFINITY) l += exp(sink - m);

    /* 3. Weights. */
    for (int64_t j = 0; j < p->Skv; j++)
        if (ref_visible(p, r->b, r->h, r->i, j)) w[j] /= l;
    return m + log(l);
}
