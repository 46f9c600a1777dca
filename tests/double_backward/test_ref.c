/* SPDX-License-Identifier: MIT
 *
 * test_ref.c - the references of forward mode and double backward against central differences of the references of forward and
 * backward: on random combinations of all options, along a random direction of one input at a time.
 */
#include "test.h"

#include "combination/combination.h"

#include <math.h>

enum { SEEDS = CASES(120) };
static const double STEP = 1e-5, TOLERANCE = 2e-8;

/* The inputs that are varied. */
enum { Q, K, V, BIAS, GRAD_O, GRAD_LSE, INPUTS };
static const char *const names[INPUTS] = {"q", "k", "v", "bias", "grad_o", "grad_lse"};

typedef struct point {
    combination c;
    double *moved[INPUTS];     /* values at which functions are evaluated */
    double *direction[INPUTS]; /* empty if an input does not exist */
    int64_t count[INPUTS];
} point;

static double *array(int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static void point_make(point *at, uint64_t seed)
{
    combination *c = &at->c;
    random_state random = random_from(seed + 77);
    combination_draw(c, seed, ATTN_F64, FINITE);
    const ref_problem *p = &c->ref;
    const double *values[INPUTS] = {c->of[TENSOR(q)].value,      c->of[TENSOR(k)].value,       c->of[TENSOR(v)].value, c->ref.bias,
                                    c->of[TENSOR(grad_o)].value, c->of[TENSOR(grad_lse)].value};
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv;
    const int64_t counts[INPUTS] = {rows * p->D, keys * p->D, keys * p->Dv, p->bias ? rows * p->Skv : 0, rows * p->Dv, rows};
    for (int x = 0; x < INPUTS; x++) {
        at->count[x] = counts[x];
        at->moved[x] = array(counts[x]);
        at->direction[x] = array(counts[x]);
        for (int64_t i = 0; i < counts[x]; i++) {
            at->moved[x][i] = values[x][i];
            at->direction[x][i] = random_signed(&random);
        }
    }
    c->ref.Q = at->moved[Q], c->ref.K = at->moved[K], c->ref.V = at->moved[V];
    if (c->ref.bias) c->ref.bias = at->moved[BIAS];
}

static void point_free(point *at)
{
    for (int x = 0; x < INPUTS; x++) free(at->moved[x]), free(at->direction[x]);
    combination_free(&at->c);
}

static void move(point *at, int x, double step)
{
    for (int64_t i = 0; i < at->count[x]; i++) at->moved[x][i] += step * at->direction[x][i];
}

static double inner(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += y && y[i] != 0 ? x[i] * y[i] : 0;
    return sum;
}

/* <dO, O> + <dlse, lse>, over rows that have an lse. */
static double loss(point *at)
{
    const ref_problem *p = &at->c.ref;
    const int64_t rows = p->B * p->Hq * p->Sq;
    double *O = array(rows * p->Dv), *lse = array(rows), *S = array(rows * p->Skv), *P = array(rows * p->Skv);
    ref_forward(p, O, lse, S, P);
    for (int64_t i = 0; i < rows; i++)
        if (lse[i] == -INFINITY) lse[i] = 0;
    double sum = inner(at->moved[GRAD_O], O, rows * p->Dv) + inner(at->moved[GRAD_LSE], lse, rows);
    free(O), free(lse), free(S), free(P);
    return sum;
}

/* The inner product of the gradients with the tangents, whose gradient is ref_double_backward. */
static double phi(point *at)
{
    const combination *c = &at->c;
    const ref_problem *p = &c->ref;
    double *dP = array(p->B * p->Hq * p->Sq * p->Skv), *dS = array(p->B * p->Hq * p->Sq * p->Skv);
    double *dQ = array(at->count[Q]), *dK = array(at->count[K]), *dV = array(at->count[V]);
    double *dscale = array(p->Hq), *dslopes = array(p->B * p->Hq), *dsink = array(p->Hq);
    ref_gradients g = {.dO = at->moved[GRAD_O],
                       .dlse = at->moved[GRAD_LSE],
                       .dQ = dQ,
                       .dK = dK,
                       .dV = dV,
                       .P = dP,
                       .dS = dS,
                       .dscale = dscale,
                       .dslopes = dslopes,
                       .dsink = dsink};
    ref_backward(p, &g);
    double sum = inner(dQ, combination_flow(c, TENSOR(tan_q)), at->count[Q]) +
                 inner(dK, combination_flow(c, TENSOR(tan_k)), at->count[K]) +
                 inner(dV, combination_flow(c, TENSOR(tan_v)), at->count[V]) +
                 inner(dS, combination_flow(c, TENSOR(tan_bias)), at->count[BIAS]);
    free(dP), free(dS), free(dQ), free(dK), free(dV), free(dscale), free(dslopes), free(dsink);
    return sum;
}

static void compare(point *at, const char *what, double (*f)(point *), const double *const gradient[INPUTS])
{
    for (int x = 0; x < INPUTS; x++) {
        if (!at->count[x] || !gradient[x]) continue;
        double size = 0, exact = 0;
        for (int64_t i = 0; i < at->count[x]; i++) {
            exact += gradient[x][i] * at->direction[x][i];
            size += fabs(gradient[x][i] * at->direction[x][i]);
        }
        move(at, x, STEP);
        double above = f(at);
        move(at, x, -2 * STEP);
        double below = f(at);
        move(at, x, STEP);
        double difference = (above - below) / (2 * STEP);
        if (!(fabs(difference - exact) <= TOLERANCE * (1 + size + fabs(above))))
            fail_msg("%s: %s, along %s: %.12g, and by differences %.12g, of %g", at->c.text, what, names[x], exact, difference,
                     size);
    }
}

/* The derivative of <dO, O> + <dlse, lse> along one input: from forward mode, as inner products with dO and dlse, and by
 * differences. */
static void test_jvp(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        point at;
        point_make(&at, (uint64_t)seed);
        const ref_problem *p = &at.c.ref;
        const int64_t rows = p->B * p->Hq * p->Sq;
        double *Od = array(rows * p->Dv), *lsed = array(rows);
        for (int x = Q; x <= BIAS; x++) {
            if (!at.count[x]) continue;
            ref_tangents t = {x == Q ? at.direction[Q] : NULL,
                              x == K ? at.direction[K] : NULL,
                              x == V ? at.direction[V] : NULL,
                              x == BIAS ? at.direction[BIAS] : NULL,
                              Od,
                              lsed};
            ref_jvp(p, &t);
            double exact = inner(at.moved[GRAD_O], Od, rows * p->Dv) + inner(at.moved[GRAD_LSE], lsed, rows);
            move(&at, x, STEP);
            double above = loss(&at);
            move(&at, x, -2 * STEP);
            double difference = (above - loss(&at)) / (2 * STEP);
            move(&at, x, STEP);
            if (!(fabs(difference - exact) <= TOLERANCE * (1 + fabs(exact) + fabs(above)) * sqrt((double)rows)))
                fail_msg("%s: along %s: %.12g, and by differences %.12g", at.c.text, names[x], exact, difference);
        }
        free(Od), free(lsed);
        point_free(&at);
    }
}

static void test_second(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        point at;
        point_make(&at, (uint64_t)seed);
        const combination *c = &at.c;
        double *out[INPUTS];
        for (int x = 0; x < INPUTS; x++) out[x] = array(x == BIAS ? c->ref.B * c->ref.Hq * c->ref.Sq * c->ref.Skv : at.count[x]);
        ref_gradgrad s = {at.moved[GRAD_O],
                          at.moved[GRAD_LSE],
                          combination_flow(c, TENSOR(tan_q)),
                          combination_flow(c, TENSOR(tan_k)),
                          combination_flow(c, TENSOR(tan_v)),
                          combination_flow(c, TENSOR(tan_bias)),
                          out[GRAD_O],
                          out[GRAD_LSE],
                          out[Q],
                          out[K],
                          out[V],
                          out[BIAS]};
        ref_double_backward(&c->ref, &s);
        compare(&at, "double backward", phi, (const double *const *)out);
        for (int x = 0; x < INPUTS; x++) free(out[x]);
        point_free(&at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_jvp), cmocka_unit_test(test_second)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
