/* SPDX-License-Identifier: MIT
 * definition.h - compares outputs with the definition of attention, row by row. */
#ifndef ATTN_TESTS_PROPERTY_DEFINITION_H
#define ATTN_TESTS_PROPERTY_DEFINITION_H

#include "attend.h"

#include <math.h>

#define FOR_EACH(n, count) for (int64_t n = 0; n < (count); n++)

static const attn_shape shape = {2, 4, 2, 20, 33, 8, 6};

static inline double score_of(const attend *a, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const attn_shape *s = &a->problem.shape;
    double sum = 0;
    FOR_EACH(c, s->dim_qk) sum += get(a, Q, b, h, i, c) * get(a, K, b, h / (s->heads_q / s->heads_kv), j, c);
    return sum;
}

/* Compares one row of the outputs of a with the definition: s[j] are its scores, -INFINITY for keys that it does not see. */
static inline void assert_row(const attend *a, int64_t b, int64_t h, int64_t i, const double *s, double rtol)
{
    const attn_shape *p = &a->problem.shape;
    double sum = 0, top = -INFINITY;
    FOR_EACH(j, p->len_kv) top = fmax(top, s[j]);
    FOR_EACH(j, p->len_kv) if (s[j] > -INFINITY) sum += exp(s[j] - top);
    FOR_EACH(c, p->dim_v)
    {
        double o = 0;
        FOR_EACH(j, p->len_kv)
        if (s[j] > -INFINITY) o += exp(s[j] - top) / sum * get(a, V, b, h / (p->heads_q / p->heads_kv), j, c);
        assert_close(get(a, O, b, h, i, c), o, rtol, 2);
    }
    if (sum == 0) assert_true(get(a, LSE, b, h, i, 0) == -INFINITY);
    else assert_close(get(a, LSE, b, h, i, 0), top + log(sum), rtol, 2 + fabs(top));
    FOR_EACH(j, p->len_kv)
    {
        const double w = get(a, WEIGHTS, b, h, i, j);
        if (s[j] == -INFINITY) assert_true(w == 0);
        else assert_close(w, exp(s[j] - top) / sum, rtol, 1);
    }
}

typedef int visible_to(const attend *a, int64_t b, int64_t i, int64_t j);

/* Runs a and compares every row with the definition, where scores are `scale q.k` for the keys that sees() keeps. */
static inline void run_and_assert(attend *a, double scale, visible_to *sees, double rtol)
{
    const attn_shape *p = &a->problem.shape;
    double s[1024];
    assert_true(p->len_kv <= 1024);
    attend_run(a);
    FOR_EACH(b, p->batch) FOR_EACH(h, p->heads_q) FOR_EACH(i, p->len_q)
    {
        FOR_EACH(j, p->len_kv) s[j] = sees(a, b, i, j) ? scale * score_of(a, b, h, i, j) : -INFINITY;
        assert_row(a, b, h, i, s, rtol);
    }
}

static inline int sees_all(const attend *a, int64_t b, int64_t i, int64_t j) { return (void)a, (void)b, (void)i, (void)j, 1; }

#endif
