/* SPDX-License-Identifier: MIT
 * test_steps.c - an attention step by step: against golden vectors, ref/, and finite differences. */
#include "fails.h"

#include "attn/analysis.h"
#include "attn/modifier.h"
#include "attn_ref.h"

#include <math.h>

static void assert_all(const double *x, const double *y, int64_t n, double off, int line)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(x[i] - y[i]) <= off)) fail_msg("line %d: element %d is %.10g and not %.10g", line, (int)i, x[i], y[i]);
}
#define SAME(x, y, off) assert_all(x, y, (int64_t)(sizeof(y) / sizeof *(y)), off, __LINE__)

static void test_golden(void **state)
{
    (void)state;
    const double q[] = {1, 0, 0, 1}, k[] = {1, 0, 0, 1, 1, 1}, v[] = {2, 0, 0, 2, 1, 1};
    double o[4], raw[6], scores[6], weights[6], Z[2], log_Z[2], dS[6], dP[6], dq[4], dk[6], dv[6];
    attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 2, 3, 2, 2}};
    attn_tensors a = {
        .struct_size = sizeof a, .q = {q, ATTN_F64, {0, 0, 0, 0}}, .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    const attn_steps steps = {sizeof steps, raw, scores, weights, log_Z, Z};
    assert_int_equal(attn_decompose(&p, &a, &steps, NULL, NULL), ATTN_OK);
    const double expected_raw[] = {1, 0, 1, 0, 1, 1}, expected_S[] = {.707107, 0, .707107, 0, .707107, .707107};
    const double expected_A[] = {.401112093, .197775815, .401112093, .197775815, .401112093, .401112093};
    const double expected_O[] = {1.203336278, .796663722, .796663722, 1.203336278}, expected_Z[] = {5.0562, 5.0562};
    SAME(raw, expected_raw, 1e-15);
    SAME(scores, expected_S, 5e-7);
    SAME(weights, expected_A, 1e-9);
    SAME(o, expected_O, 1e-9);
    SAME(Z, expected_Z, 5e-5);
    assert_true(fabs(log_Z[0] - log(Z[0])) < 1e-14);
    assert_true(fabs(attn_entropy(3, weights) - 1.053362978) < 1e-9);

    attn_flow flow = {sizeof flow, dP, dS, dq, dk, dv, 0, 0, 0, 0, 0, 0}; /* of |O|^2 / 2 */
    assert_int_equal(attn_gradient_flow(&p, &a, &flow, NULL, NULL), ATTN_OK);
    const double expected_dv[] = {.640233549, .557542265, .557542265, .640233549, .802224185, .802224185};
    const double expected_dS[] = {.129952806, -.096784332, -.033168474, -.096784332, .129952806, -.033168474};
    const double expected_dq[] = {.068436858, -.09189051, -.09189051, .068436858};
    const double expected_dk[] = {.09189051, -.068436858, -.068436858, .09189051, -.023453653, -.023453653};
    SAME(dv, expected_dv, 1e-9);
    SAME(dS, expected_dS, 1e-9);
    SAME(dq, expected_dq, 1e-9);
    SAME(dk, expected_dk, 1e-9);
    assert_true(fabs(flow.norm_grad_q - sqrt(2 * (.068436858 * .068436858 + .09189051 * .09189051))) < 1e-9);

    const double dO[] = {1, 2, -1, 3};
    a.grad_o = attn_in(dO);
    assert_int_equal(attn_gradient_flow(&p, &a, &flow, NULL, NULL), ATTN_OK);
    const double other_dv[] = {.203336278, 1.395551629, -.203336278, 1.598887907, 0, 2.005560463};
    const double other_dq[] = {-.168284918, .225956999, -.903827997, .67313967};
    const double other_dk[] = {-.225956999, -.67313967, .168284918, .903827997, .057672082, -.230688326};
    SAME(dv, other_dv, 1e-9);
    SAME(dq, other_dq, 1e-9);
    SAME(dk, other_dk, 1e-9);
    assert_true(fabs(flow.norm_grad_o - sqrt(15)) < 1e-14);

    /* 16.13: values whose rows have equal sums, and L = sum O, leave no gradient for q and k. */
    const double flat[] = {1, 0, 0, 1, .5, .5}, ones[] = {1, 1, 1, 1};
    a.v = attn_in(flat), a.grad_o = attn_in(ones);
    assert_int_equal(attn_gradient_flow(&p, &a, &flow, NULL, NULL), ATTN_OK);
    assert_true(flow.norm_grad_q < 1e-15 && flow.norm_grad_k < 1e-15 && flow.norm_grad_v > 1);
}

enum { B = 2, HQ = 4, HKV = 2, Q = 5, K = 7, D = 3, DV = 2 };
static double q[B * HQ * Q * D], k[B * HKV * K * D], v[B * HKV * K * DV], dO[B * HQ * Q * DV], o[B * HQ * Q * DV];

static attn_problem drawn(attn_tensors *a, const int64_t *offset)
{
    for (int i = 0; i < B * HQ * Q * D; i++) q[i] = sin(1.0 + i);
    for (int i = 0; i < B * HKV * K * D; i++) k[i] = cos(2.0 * i);
    for (int i = 0; i < B * HKV * K * DV; i++) v[i] = sin(3.0 * i);
    for (int i = 0; i < B * HQ * Q * DV; i++) dO[i] = cos(5.0 * i);
    *a = (attn_tensors){.struct_size = sizeof *a,
                        .q = {q, ATTN_F64, {0, 0, 0, 0}},
                        .k = attn_in(k),
                        .v = attn_in(v),
                        .o = attn_out(o),
                        .offset_q = attn_in(offset),
                        .grad_o = attn_in(dO)};
    attn_problem p = {.struct_size = sizeof p, .shape = {B, HQ, HKV, Q, K, D, DV}};
    p.mask.causal = 1;
    p.score.temperature = 1.5;
    return p;
}

/* Grouped heads, a fully masked query, a temperature: against ref/. */
static void test_reference(void **state)
{
    (void)state;
    static double raw[B * HQ * Q * K], S[B * HQ * Q * K], P[B * HQ * Q * K], expected_S[B * HQ * Q * K], expected_P[B * HQ * Q * K];
    static double dP[B * HQ * Q * K], dS[B * HQ * Q * K], expected_dS[B * HQ * Q * K];
    double lse[B * HQ * Q], expected_lse[B * HQ * Q], expected_o[B * HQ * Q * DV], dq[B * HQ * Q * D], dk[B * HKV * K * D],
        dv[B * HKV * K * DV], expected_dq[B * HQ * Q * D], expected_dk[B * HKV * K * D], expected_dv[B * HKV * K * DV], scale[HQ];
    const int64_t offset[B] = {-1, 2};
    attn_tensors a;
    attn_problem p = drawn(&a, offset);
    const attn_steps steps = {sizeof steps, raw, S, P, lse, NULL};
    assert_int_equal(attn_decompose(&p, &a, &steps, NULL, NULL), ATTN_OK);
    const ref_problem r = {.B = B,
                           .Hq = HQ,
                           .Hkv = HKV,
                           .Sq = Q,
                           .Skv = K,
                           .D = D,
                           .Dv = DV,
                           .Q = q,
                           .K = k,
                           .V = v,
                           .scale = 1 / sqrt(D),
                           .temperature = 1.5,
                           .causal = 1,
                           .offset = offset};
    ref_forward(&r, expected_o, expected_lse, expected_S, expected_P);
    SAME(o, expected_o, 1e-14);
    SAME(P, expected_P, 1e-14);
    for (int i = 0; i < B * HQ * Q * K; i++) {
        if (expected_S[i] == -INFINITY) assert_true(S[i] == -INFINITY);
        else assert_true(fabs(S[i] - expected_S[i]) < 1e-14 && fabs(raw[i] - expected_S[i] * sqrt(D) * 1.5) < 1e-13);
    }
    for (int i = 0; i < B * HQ * Q; i++) assert_true(lse[i] == expected_lse[i] || fabs(lse[i] - expected_lse[i]) < 1e-14);
    attn_flow flow = {sizeof flow, dP, dS, dq, dk, dv, 0, 0, 0, 0, 0, 0};
    assert_int_equal(attn_gradient_flow(&p, &a, &flow, NULL, NULL), ATTN_OK);
    const ref_gradients g = {
        .dO = dO, .dQ = expected_dq, .dK = expected_dk, .dV = expected_dv, .P = expected_P, .dS = expected_dS, .dscale = scale};
    ref_backward(&r, &g);
    SAME(dS, expected_dS, 1e-14);
    SAME(dq, expected_dq, 1e-14);
    SAME(dk, expected_dk, 1e-14);
    SAME(dv, expected_dv, 1e-14);
    for (int i = 0; i < B * HQ * Q; i++) { /* P27 */
        double sum = 0;
        for (int j = 0; j < K; j++) sum += dS[i * K + j];
        assert_true(fabs(sum) < 1e-14);
    }
}

/* Scores times 2, whose slope is 2, or as a caller gets it wrong, context[0]. */
static void twice(void *context, const attn_score_tile *t)
{
    (void)context;
    for (int64_t j = 0; j < t->keys; j++)
        for (int64_t i = 0; i < t->queries; i++) ((double *)t->scores)[j * t->stride + i] *= 2;
}
static void slope_of(void *context, const attn_score_tile *t)
{
    for (int64_t j = 0; j < t->keys; j++)
        for (int64_t i = 0; i < t->queries; i++) ((double *)t->slopes)[j * t->stride + i] = *(const double *)context;
}

/* Gradients of the caller's own scores, with the right slope and with wrong ones. */
static void test_wrong_gradients(void **state)
{
    static const double slopes[] = {2, 2.1, 0, -2};
    (void)state;
    const int64_t offset[B] = {0, 0};
    for (int n = 0; n < 4; n++) {
        attn_tensors a;
        const attn_problem p = drawn(&a, offset);
        double slope = slopes[n];
        const attn_call call = {
            .struct_size = sizeof call, .modify_scores = twice, .modify_slopes = slope_of, .modify_context = &slope};
        attn_verification result = {.struct_size = sizeof result};
        attn_error error;
        a.call = &call;
        if (attn_verify_gradients(&p, 0, 0, &a, &result, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
        assert_int_equal(result.correct, n == 0);
        assert_int_equal(result.max_error <= result.limit, n == 0);
    }
}

/* Correct gradients pass, with the default loss and a given one, and with dropout; too small a step shows in max_error. */
static void test_verification(void **state)
{
    (void)state;
    const int64_t offset[B] = {-1, 2};
    attn_tensors a;
    attn_problem p = drawn(&a, offset);
    attn_verification result = {.struct_size = sizeof result};
    assert_int_equal(attn_verify_gradients(&p, 0, 0, &a, &result, NULL, NULL), ATTN_OK);
    assert_int_equal(result.checked, B * HQ * Q * D + B * HKV * K * D + B * HKV * K * DV);
    assert_true(result.correct && result.max_error < 1e-8 && result.relative_error < 1e-6);
    assert_int_equal(attn_verify_gradients(&p, 0, 10, &a, &result, NULL, NULL), ATTN_OK);
    assert_true(result.correct && result.checked == 30);
    a.grad_o = (attn_input){NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    p.dropout.probability = 0.3;
    const attn_call call = {.struct_size = sizeof call, .dropout_seed = 5};
    a.call = &call;
    assert_int_equal(attn_verify_gradients(&p, 1e-4, 0, &a, &result, NULL, NULL), ATTN_OK);
    assert_true(result.correct && result.limit < 1e-2);
    /* A step this small: the rounding of the difference dominates. */
    a.grad_o = attn_in(dO);
    assert_int_equal(attn_verify_gradients(&p, 1e-9, 0, &a, &result, NULL, NULL), ATTN_OK);
    assert_true(result.max_error > 1e-9);
}

static void test_rejected(void **state)
{
    (void)state;
    const int64_t offset[B] = {0, 0};
    attn_tensors a;
    attn_problem p = drawn(&a, offset);
    attn_verification result = {.struct_size = sizeof result};
    attn_flow flow = {.struct_size = sizeof flow};
    attn_steps steps = {.struct_size = sizeof steps};
    FAILS(attn_decompose(NULL, &a, &steps, NULL, &error), ATTN_ERR_ARGUMENT, "problem is NULL");
    FAILS(attn_decompose(&p, &a, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "steps is NULL");
    FAILS(attn_gradient_flow(&p, &a, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "flow is NULL");
    FAILS(attn_verify_gradients(&p, 0, 0, &a, NULL, NULL, &error), ATTN_ERR_ARGUMENT, "result is NULL");
    FAILS(attn_verify_gradients(&p, 2, 0, &a, &result, NULL, &error), ATTN_ERR_ARGUMENT,
          "step is 2; it must be above 0 and below 1 (0 for 1e-5)");
    FAILS(attn_verify_gradients(&p, 0, -1, &a, &result, NULL, &error), ATTN_ERR_ARGUMENT,
          "most is -1; it must be at least 1, or 0 for all elements");
    a.q.dtype = ATTN_F32;
    FAILS(attn_decompose(&p, &a, &steps, NULL, &error), ATTN_ERR_UNSUPPORTED, "q is f32; the analysis needs f64");
    p = drawn(&a, offset), a.cu_seqlens_q = attn_in(offset);
    FAILS(attn_decompose(&p, &a, &steps, NULL, &error), ATTN_ERR_UNSUPPORTED,
          "cu_seqlens_q is set; the analysis takes padded sequences only");
    p = drawn(&a, offset), p.op = ATTN_BACKWARD;
    FAILS(attn_decompose(&p, &a, &steps, NULL, &error), ATTN_ERR_ARGUMENT,
          "op is not ATTN_FORWARD; the analysis runs the other passes itself");
    p = drawn(&a, offset), p.dropout.probability = 0.5;
    FAILS(attn_gradient_flow(&p, &a, &flow, NULL, &error), ATTN_ERR_UNSUPPORTED,
          "dropout.probability is 0.5; gradient flow does not support dropout");
    p = drawn(&a, offset), a.k.stride[0] = HKV * K * D, a.k.stride[1] = K * D, a.k.stride[2] = D, a.k.stride[3] = 1;
    FAILS(attn_gradient_flow(&p, &a, &flow, NULL, &error), ATTN_ERR_UNSUPPORTED,
          "k has strides; gradient analysis takes dense tensors (all 0)");
    p = drawn(&a, offset), p.mask.chunk = -1; /* rejected by the core */
    FAILS(attn_gradient_flow(&p, &a, &flow, NULL, &error), ATTN_ERR_ARGUMENT,
          "mask.chunk is -1; it must be at least 1, or 0 for none");
}

/* A call is rejected before it writes o or any array. */
static void test_apart(void **state)
{
    enum { PAIRS = B * HQ * Q * K };
    static double raw[PAIRS + 8], held[PAIRS + 8];
    const int64_t offset[B] = {0, 0};
    attn_tensors a;
    attn_error error;
    attn_flow flow = {.struct_size = sizeof flow};
    attn_steps steps = {.struct_size = sizeof steps};
    attn_problem p;
    (void)state;
    for (int i = 0; i < PAIRS + 8; i++) raw[i] = held[i] = 7;
#define OVERLAP(change, call, text)                                                                                                \
    do {                                                                                                                           \
        p = drawn(&a, offset);                                                                                                     \
        double before = *(double *)a.o.data = 5;                                                                                   \
        steps = (attn_steps){.struct_size = sizeof steps, .raw = raw};                                                             \
        flow = (attn_flow){.struct_size = sizeof flow, .grad_q = raw};                                                             \
        double *const at_o = a.o.data;                                                                                             \
        change;                                                                                                                    \
        assert_int_not_equal(call, ATTN_OK);                                                                                       \
        assert_string_equal(error.message, text);                                                                                  \
        assert_true(*at_o == before);                                                                                              \
        assert_memory_equal(raw, held, sizeof raw);                                                                                \
    } while (0)
#define STEPS(change, text) OVERLAP(change, attn_decompose(&p, &a, &steps, NULL, &error), text)
#define FLOW(change, text)  OVERLAP(change, attn_gradient_flow(&p, &a, &flow, NULL, &error), text)
    STEPS(steps.weights = at_o, "o and weights share elements; an output must not overlap another tensor");
    STEPS(steps.scores = steps.log_partition = raw, "lse and scores share elements; an output must not overlap another tensor");
    STEPS(steps.weights = raw + 5, "analysis: weights and raw share elements; an output must not overlap another tensor");
    STEPS(steps.raw = at_o, "analysis: o and raw share elements; an output must not overlap another tensor");
    STEPS((steps.log_partition = raw + PAIRS, steps.partition = raw),
          "analysis: raw and partition share elements; an output must not overlap another tensor");
    STEPS(a.v.data = ATTN_LATER, "v is ATTN_LATER; an execution needs its pointer");
    STEPS(a.v.data = raw, "analysis: raw and v share elements; an output must not overlap another tensor");
    FLOW(flow.grad_k = at_o, "analysis: o and grad_k share elements; an output must not overlap another tensor");
    FLOW(flow.grad_scores = raw + 1, "analysis: grad_scores and grad_q share elements; an output must not overlap another tensor");
    FLOW(a.grad_o = attn_in(raw), "analysis: grad_q and grad_o share elements; an output must not overlap another tensor");
    FLOW(a.grad_o = attn_in(ATTN_LATER), "grad_o is ATTN_LATER; this call needs its pointer");
    FLOW(a.k.data = ATTN_LATER, "k is ATTN_LATER; an execution needs its pointer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_golden),       cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_verification), cmocka_unit_test(test_wrong_gradients),
                                       cmocka_unit_test(test_rejected),     cmocka_unit_test(test_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
