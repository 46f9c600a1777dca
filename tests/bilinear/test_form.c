/* SPDX-License-Identifier: MIT
 * test_form.c - bilinear forms against their definition, their gradients against finite differences; property P22; attention in a
 * metric against the core's own scores; rejected calls, with the exact message. */
#include "fails.h"

#include <float.h>
#include <math.h>

#include "attn/bilinear.h"
#include "draw.h"

enum { N = 5, M = 7, D = 4, DV = 3 };

/* For sums of D * D or M * D products of three numbers below 1. */
static const double bound = DBL_EPSILON * M * D * D;

static double q[N * D], k[M * D], v[M * DV], g[D * D], grad[N * M];

static int start(void **state)
{
    (void)state;
    draw(q, N * D, 1);
    draw(k, M * D, 2);
    draw(v, M * DV, 3);
    draw(g, D * D, 4);
    draw(grad, N * M, 5);
    return 0;
}

static void assert_near(double x, double y, double off)
{
    if (!(fabs(x - y) <= off)) fail_msg("%.17g is not %.17g", x, y);
}

static double form_of(const double *u, const double *w, const double *metric)
{
    double sum = 0;
    for (int a = 0; a < D; a++)
        for (int b = 0; b < D; b++) sum += u[a] * metric[a * D + b] * w[b];
    return sum;
}

static void test_definition(void **state)
{
    double form[N], scores[N * M], quadratic[N], moved[N * D];
    (void)state;
    assert_int_equal(attn_bilinear_form(N, D, q, k, g, form, NULL), ATTN_OK);
    assert_int_equal(attn_quadratic_form(N, D, q, g, quadratic, NULL), ATTN_OK);
    assert_int_equal(attn_bilinear_form_batch(N, M, D, q, k, g, scores, NULL), ATTN_OK);
    assert_int_equal(attn_index_lower(N, D, q, g, moved, NULL), ATTN_OK);
    for (int i = 0; i < N; i++) {
        assert_near(form[i], form_of(q + i * D, k + i * D, g), bound);
        assert_near(quadratic[i], form_of(q + i * D, q + i * D, g), bound);
        for (int j = 0; j < M; j++) assert_near(scores[i * M + j], form_of(q + i * D, k + j * D, g), bound);
        for (int a = 0; a < D; a++) {
            double sum = 0;
            for (int b = 0; b < D; b++) sum += g[a * D + b] * q[i * D + b];
            assert_near(moved[i * D + a], sum, bound);
        }
    }
    /* Section 15. */
    const double u3[3] = {1, 2, 1}, v3[3] = {2, 1, 0};
    double g3[9], golden;
    assert_int_equal(attn_metric_scaled(3, 0, g3, NULL), ATTN_OK);
    assert_int_equal(attn_bilinear_form(1, 3, u3, v3, g3, &golden, NULL), ATTN_OK);
    assert_near(golden, 2.309401, 6e-7);
    assert_int_equal(attn_inner_product(1, 3, u3, v3, "scaled", &golden, NULL), ATTN_OK);
    assert_near(golden, 2.309401, 6e-7);
    assert_int_equal(attn_inner_product(1, 3, u3, v3, "euclidean", &golden, NULL), ATTN_OK);
    assert_true(golden == 4);
    /* No rows: no work. */
    assert_int_equal(attn_bilinear_form_batch(0, M, D, q, k, g, scores, NULL), ATTN_OK);
    assert_int_equal(attn_bilinear_form(0, D, q, k, g, form, NULL), ATTN_OK);
}

/* B is linear in each argument, and symmetric if and only if g is; raising an index undoes lowering it. */
static void p22_bilinear(void **state)
{
    double sum[D], both[1], one[1], other[1], symmetric[D * D], lowered[N * D], inverse[D * D], raised[N * D];
    (void)state;
    for (int c = 0; c < D; c++) sum[c] = 2 * q[c] - 3 * q[D + c];
    for (int place = 0; place < 2; place++) {
        assert_int_equal(attn_bilinear_form(1, D, place ? k : sum, place ? sum : k, g, both, NULL), ATTN_OK);
        assert_int_equal(attn_bilinear_form(1, D, place ? k : q, place ? q : k, g, one, NULL), ATTN_OK);
        assert_int_equal(attn_bilinear_form(1, D, place ? k : q + D, place ? q + D : k, g, other, NULL), ATTN_OK);
        assert_near(both[0], 2 * one[0] - 3 * other[0], 5 * bound);
    }
    for (int i = 0; i < D * D; i++) symmetric[i] = g[i] + g[i % D * D + i / D];
    assert_int_equal(attn_bilinear_form(1, D, q, k, symmetric, one, NULL), ATTN_OK);
    assert_int_equal(attn_bilinear_form(1, D, k, q, symmetric, other, NULL), ATTN_OK);
    assert_near(one[0], other[0], bound);
    assert_int_equal(attn_bilinear_form(1, D, q, k, g, one, NULL), ATTN_OK);
    assert_int_equal(attn_bilinear_form(1, D, k, q, g, other, NULL), ATTN_OK);
    assert_true(fabs(one[0] - other[0]) > .01);
    for (int a = 0; a < D; a++) symmetric[a * D + a] += 4;
    assert_int_equal(attn_metric_inverse(D, symmetric, inverse, NULL), ATTN_OK);
    assert_int_equal(attn_index_lower(N, D, q, symmetric, lowered, NULL), ATTN_OK);
    assert_int_equal(attn_index_raise(N, D, lowered, inverse, raised, NULL), ATTN_OK);
    for (int i = 0; i < N * D; i++) assert_near(raised[i], q[i], 64 * bound);
}

/* The outputs of one function of q, k and g, weighted by grad. */
typedef double objective(void);

static double of_forms(void)
{
    double form[N], sum = 0;
    assert_int_equal(attn_bilinear_form(N, D, q, k, g, form, NULL), ATTN_OK);
    for (int i = 0; i < N; i++) sum += grad[i] * form[i];
    return sum;
}

static double of_batch(void)
{
    double scores[N * M], sum = 0;
    assert_int_equal(attn_bilinear_form_batch(N, M, D, q, k, g, scores, NULL), ATTN_OK);
    for (int i = 0; i < N * M; i++) sum += grad[i] * scores[i];
    return sum;
}

static double of_index(void)
{
    double lowered[N * D], sum = 0;
    assert_int_equal(attn_index_lower(N, D, q, g, lowered, NULL), ATTN_OK);
    for (int i = 0; i < N * D; i++) sum += grad[i] * lowered[i];
    return sum;
}

/* All three are linear in each of q, k and g, so a central difference over a long step has rounding errors only. */
static void assert_slopes(objective *f, double *x, int count, const double *gradient)
{
    for (int i = 0; i < count; i++) {
        const double kept = x[i];
        x[i] = kept + 1;
        const double up = f();
        x[i] = kept - 1;
        assert_near((up - f()) / 2, gradient[i], N * 4 * bound);
        x[i] = kept;
    }
}

static void test_gradients(void **state)
{
    double dq[N * D], dk[M * D], dg[D * D];
    (void)state;
    assert_int_equal(attn_bilinear_form_backward(N, D, q, k, g, grad, dq, dk, dg, NULL), ATTN_OK);
    assert_slopes(of_forms, q, N * D, dq);
    assert_slopes(of_forms, k, N * D, dk);
    assert_slopes(of_forms, g, D * D, dg);
    assert_int_equal(attn_bilinear_form_batch_backward(N, M, D, q, k, g, grad, dq, dk, dg, NULL), ATTN_OK);
    assert_slopes(of_batch, q, N * D, dq);
    assert_slopes(of_batch, k, M * D, dk);
    assert_slopes(of_batch, g, D * D, dg);
    assert_int_equal(attn_index_backward(N, D, q, g, grad, dq, dg, NULL), ATTN_OK);
    assert_slopes(of_index, q, N * D, dq);
    assert_slopes(of_index, g, D * D, dg);
}

static const attn_problem problem = {.struct_size = sizeof problem, .shape = {1, 1, 1, N, M, D, DV}};

static attn_tensors tensors_of(attn_dtype dtype, const void *q_of, const void *k_of, const void *v_of, void *o_of)
{
    return (attn_tensors){.struct_size = sizeof(attn_tensors),
                          .q = {q_of, dtype, {0, 0, 0, 0}},
                          .k = attn_in(k_of),
                          .v = attn_in(v_of),
                          .o = attn_out(o_of)};
}

/* P22: the metric I/sqrt(d) gives standard attention, I gives it unscaled.  The error of a score is D * D + D roundings of the
 * magnitude of its terms, that of a weight twice as much, and the mean of M values adds M more. */
static void p22_attention(void **state)
{
    const double off = 2 * DBL_EPSILON * (2 * (D * D + D) * D + M + 16);
    double metric[D * D], plain[N * DV], o[N * DV];
    attn_problem p = problem;
    attn_tensors a = tensors_of(ATTN_F64, q, k, v, plain);
    (void)state;
    for (int unscaled = 0; unscaled < 2; unscaled++) {
        attn_problem with = p;
        if (unscaled) p.score.scale_kind = ATTN_SCALE_VALUE, p.score.scale = 1;
        a.o = attn_out(plain);
        assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
        assert_int_equal(attn_metric_scaled(D, unscaled, metric, NULL), ATTN_OK);
        a.o = attn_out(o);
        assert_int_equal(attn_bilinear_attention(&with, &a, metric, NULL, NULL), ATTN_OK);
        for (int i = 0; i < N * DV; i++) assert_near(o[i], plain[i], off);
    }
}

/* Scores are Q g K^T, in every storage type; gradients equal those composed from the separate functions. */
static void test_attention(void **state)
{
    const attn_dtype types[] = {ATTN_F64, ATTN_F32, ATTN_F16, ATTN_BF16};
    double scores[N * M], o[N * DV], lse[N], dO[N * DV], dS[N * M], weights[N * M];
    double dq[N * D], dk[M * D], dg[D * D], expected_dq[N * D], expected_dk[M * D], expected_dg[D * D], dv[M * DV];
    (void)state;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const attn_dtype compute = types[t] == ATTN_F64 ? ATTN_F64 : ATTN_F32;
        unsigned char stored[3][M * D * 8], out[N * DV * 8], found[N * M * 8];
        double rounded_q[N * D], rounded_k[M * D], got[N * M];
        const attn_problem p = problem;
        (void)attn_convert(N * D, q, ATTN_F64, stored[0], types[t], NULL);
        (void)attn_convert(M * D, k, ATTN_F64, stored[1], types[t], NULL);
        (void)attn_convert(M * DV, v, ATTN_F64, stored[2], types[t], NULL);
        (void)attn_convert(N * D, stored[0], types[t], rounded_q, ATTN_F64, NULL);
        (void)attn_convert(M * D, stored[1], types[t], rounded_k, ATTN_F64, NULL);
        attn_tensors a = tensors_of(types[t], stored[0], stored[1], stored[2], out);
        a.scores = attn_out(found);
        assert_int_equal(attn_bilinear_attention(&p, &a, g, NULL, NULL), ATTN_OK);
        (void)attn_convert(N * M, found, compute, got, ATTN_F64, NULL);
        assert_int_equal(attn_bilinear_form_batch(N, M, D, rounded_q, rounded_k, g, scores, NULL), ATTN_OK);
        for (int i = 0; i < N * M; i++) assert_near(got[i], scores[i], compute == ATTN_F64 ? bound : bound / DBL_EPSILON * 0x1p-23);
    }
    draw(dO, N * DV, 9);
    attn_problem p = problem;
    attn_tensors a = tensors_of(ATTN_F64, q, k, v, o);
    a.lse = attn_out(lse), a.weights = attn_out(weights);
    assert_int_equal(attn_bilinear_attention(&p, &a, g, NULL, NULL), ATTN_OK);
    p.op = ATTN_BACKWARD;
    a.weights = (attn_output){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    a.grad_o = attn_in(dO), a.grad_q = attn_out(dq), a.grad_k = attn_out(dk), a.grad_v = attn_out(dv);
    a.grad_score_matrix = attn_out(dg);
    assert_int_equal(attn_bilinear_attention(&p, &a, g, NULL, NULL), ATTN_OK);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < M; j++) {
            double dP = 0;
            for (int c = 0; c < DV; c++) dP += dO[i * DV + c] * (v[j * DV + c] - o[i * DV + c]);
            dS[i * M + j] = weights[i * M + j] * dP;
        }
    assert_int_equal(attn_bilinear_form_batch_backward(N, M, D, q, k, g, dS, expected_dq, expected_dk, expected_dg, NULL), ATTN_OK);
    for (int i = 0; i < N * D; i++) assert_near(dq[i], expected_dq[i], 64 * bound);
    for (int i = 0; i < M * D; i++) assert_near(dk[i], expected_dk[i], 64 * bound);
    for (int i = 0; i < D * D; i++) assert_near(dg[i], expected_dg[i], 64 * bound);
}

static void test_rejected(void **state)
{
    double out[N * M] = {7};
    attn_problem p = problem;
    attn_tensors a = tensors_of(ATTN_F64, q, k, v, out);
    (void)state;
    FAILS(attn_inner_product(1, D, q, k, "manhattan", out, &error), ATTN_ERR_ARGUMENT,
          "metric is manhattan; it must be euclidean or scaled");
    FAILS(attn_bilinear_form(1, D, q, NULL, g, out, &error), ATTN_ERR_ARGUMENT, "v is NULL");
    FAILS(attn_bilinear_form(-2, D, q, k, g, out, &error), ATTN_ERR_SHAPE, "count (-2) is negative");
    FAILS(attn_bilinear_form_batch(N, -1, D, q, k, g, out, &error), ATTN_ERR_SHAPE, "len_kv (-1) is negative");
    FAILS(attn_bilinear_form_batch(INT64_C(1) << 40, INT64_C(1) << 40, D, q, k, g, out, &error), ATTN_ERR_SHAPE,
          "len_q 1099511627776 times len_kv 1099511627776 exceeds the address space");
    FAILS(attn_index_backward(1, D, q, g, NULL, out, out, &error), ATTN_ERR_ARGUMENT, "grad is NULL");
    FAILS(attn_bilinear_attention(&p, &a, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "g is NULL");
    p.score.kind = ATTN_SCORE_COSINE;
    FAILS(attn_bilinear_attention(&p, &a, g, NULL, &error), ATTN_ERR_ARGUMENT,
          "score has a kind or dim_k of its own; bilinear attention sets them");
    p.score.kind = ATTN_SCORE_DOT;
    attn_tensors with = a;
    with.score_matrix = attn_in(g);
    FAILS(attn_bilinear_attention(&p, &with, g, NULL, &error), ATTN_ERR_ARGUMENT,
          "score_matrix is set; bilinear attention does not use it");
    p.struct_size = 8;
    assert_int_equal(attn_bilinear_attention(&p, &a, g, NULL, NULL), ATTN_ERR_ARGUMENT);
    assert_true(out[0] == 7);
}

/* Each output overlapping each array that it is computed from, or another output. */
static void test_overlap(void **state)
{
    double x[64], fresh[64], y[64];
    (void)state;
    draw(x, 64, 6);
    draw(y, 64, 7);
    memcpy(fresh, x, sizeof x);
    OVERLAPS(attn_index_lower(2, 2, x, y, x, &error), "bilinear: lowered and v");
    OVERLAPS(attn_index_lower(2, 2, y, x, x + 3, &error), "bilinear: lowered and g");
    OVERLAPS(attn_index_raise(2, 2, x, y, x, &error), "bilinear: raised and v");
    OVERLAPS(attn_index_raise(2, 2, y, x, x + 3, &error), "bilinear: raised and inverse");
    OVERLAPS(attn_index_backward(2, 2, x, y, y, x, NULL, &error), "bilinear: grad_v and v");
    OVERLAPS(attn_index_backward(2, 2, y, y, x, NULL, x + 1, &error), "bilinear: grad_g and grad");
    OVERLAPS(attn_index_backward(2, 2, y, y, y, x, x + 3, &error), "bilinear: grad_v and grad_g");
    OVERLAPS(attn_bilinear_form(2, 2, x, y, y, x + 3, &error), "bilinear: form and u");
    OVERLAPS(attn_bilinear_form(2, 2, y, x, y, x, &error), "bilinear: form and v");
    OVERLAPS(attn_bilinear_form(2, 2, y, y, x, x, &error), "bilinear: form and g");
    OVERLAPS(attn_quadratic_form(2, 2, x, y, x, &error), "bilinear: form and v");
    OVERLAPS(attn_bilinear_form_backward(2, 2, x, y, y, y, x, NULL, NULL, &error), "bilinear: grad_u and u");
    OVERLAPS(attn_bilinear_form_backward(2, 2, y, x, y, y, NULL, x, NULL, &error), "bilinear: grad_v and v");
    OVERLAPS(attn_bilinear_form_backward(2, 2, y, y, x, y, NULL, NULL, x, &error), "bilinear: grad_g and g");
    OVERLAPS(attn_bilinear_form_backward(2, 2, y, y, y, x, x, NULL, NULL, &error), "bilinear: grad_u and grad");
    OVERLAPS(attn_bilinear_form_batch(2, 3, 2, x, y, y, x, &error), "bilinear: scores and q");
    OVERLAPS(attn_bilinear_form_batch(2, 3, 2, y, x, y, x + 5, &error), "bilinear: scores and k");
    OVERLAPS(attn_bilinear_form_batch(2, 3, 2, y, y, x, x, &error), "bilinear: scores and g");
    OVERLAPS(attn_bilinear_form_batch_backward(2, 3, 2, x, y, y, y, x, NULL, NULL, &error), "bilinear: grad_q and q");
    OVERLAPS(attn_bilinear_form_batch_backward(2, 3, 2, y, x, y, y, NULL, x, NULL, &error), "bilinear: grad_k and k");
    OVERLAPS(attn_bilinear_form_batch_backward(2, 3, 2, y, y, x, y, NULL, NULL, x, &error), "bilinear: grad_g and g");
    OVERLAPS(attn_bilinear_form_batch_backward(2, 3, 2, y, y, y, x, x + 5, NULL, NULL, &error), "bilinear: grad_q and grad");
    OVERLAPS(attn_inner_product(2, 2, x, y, NULL, x, &error), "bilinear: form and u");
    OVERLAPS(attn_inner_product(2, 2, y, x, NULL, x, &error), "bilinear: form and v");
    assert_memory_equal(x, fresh, sizeof x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition), cmocka_unit_test(p22_bilinear),   cmocka_unit_test(test_gradients),
        cmocka_unit_test(p22_attention),   cmocka_unit_test(test_attention), cmocka_unit_test(test_rejected),
        cmocka_unit_test(test_overlap),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
