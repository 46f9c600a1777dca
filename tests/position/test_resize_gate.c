/* SPDX-License-Identifier: MIT
 * test_resize_gate.c - tables resized by interpolation, and the gate of a bias: known numbers, the transpose, differences. */
#include "test.h"

#include <math.h>

#include "attn/position.h"

static void assert_near(double x, double y, double off)
{
    if (!(fabs(x - y) <= off)) fail_msg("%.17g is not %.17g", x, y);
}

static void test_resize(void **state)
{
    (void)state;
    /* 3 rows to 6: at -0.25 (clamped to 0), 0.25, 0.75, 1.25, 1.75, 2.25 (past the last). */
    const double x[3] = {0, 8, 24}, expected[6] = {0, 2, 6, 12, 20, 24};
    double y[6], same[3], transposed[2 * 6];
    const attn_input from = {x, ATTN_F64, {0, 0, 0, 0}}, twice = {x, ATTN_F64, {0, 0, 1, ATTN_BROADCAST}};
    assert_int_equal(attn_position_resize(1, 3, 6, &from, &(attn_output){y, ATTN_F64, {0, 0, 0, 0}}, NULL), ATTN_OK);
    for (int t = 0; t < 6; t++) assert_near(y[t], expected[t], 1e-14);
    assert_int_equal(attn_position_resize(1, 3, 3, &from, &(attn_output){same, ATTN_F64, {0, 0, 0, 0}}, NULL), ATTN_OK);
    for (int t = 0; t < 3; t++) assert_true(same[t] == x[t]);
    assert_int_equal(attn_position_resize(1, 3, 0, &from, &(attn_output){0}, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_position_resize(1, 3, 0, &from, &(attn_output){ATTN_EMPTY, 0, {0}}, NULL), ATTN_OK);
    /* Two channels that broadcast one column; y column by column. */
    assert_int_equal(attn_position_resize(2, 3, 6, &twice, &(attn_output){transposed, 0, {0, 0, 1, 6}}, NULL), ATTN_OK);
    for (int t = 0; t < 12; t++) assert_near(transposed[t], expected[t % 6], 1e-14);
    /* The gradient is the transpose: <resize(x), g> = <x, resize_backward(g)>, for stretching and shrinking, in f32 too. */
    enum { D = 3, N = 11 };
    for (int rows = 1; rows <= N; rows += 5)
        for (int rows_y = 1; rows_y <= N; rows_y += 2) {
            double a[N * D], b[N * D], g[N * D], dx[N * D], there = 0, back = 0;
            float single[N * D], made[N * D];
            for (int i = 0; i < N * D; i++) a[i] = sin(i + 1.0), g[i] = cos(2.0 * i), single[i] = (float)a[i];
            const attn_input of_a = {a, ATTN_F64, {0}}, of_g = {g, ATTN_F64, {0}}, of_single = attn_in(single);
            const attn_output to_b = attn_out(b), to_dx = attn_out(dx), to_made = attn_out(made);
            assert_int_equal(attn_position_resize(D, rows, rows_y, &of_a, &to_b, NULL), ATTN_OK);
            assert_int_equal(attn_position_resize_backward(D, rows, rows_y, &of_g, &to_dx, NULL), ATTN_OK);
            assert_int_equal(attn_position_resize(D, rows, rows_y, &of_single, &to_made, NULL), ATTN_OK);
            for (int i = 0; i < rows_y * D; i++) there += b[i] * g[i], assert_near((double)made[i], b[i], 0x1p-23);
            for (int i = 0; i < rows * D; i++) back += a[i] * dx[i];
            assert_near(there, back, 1e-13);
        }
}

enum { B = 2, H = 2, S = 3, D = 4, W = 3 };
static double q[B * S * H * D], w[D * 2 * W], b[2 * W], a[H], grad[B * H * S];
static const attn_bias_gate rule = {.struct_size = sizeof rule, .batch = B, .heads = H, .len_q = S, .dim = D, .width = W};

/* q in the layout of projections, [batch, token, head, channel]. */
static attn_bias_gate_tensors inputs(void)
{
    return (attn_bias_gate_tensors){.struct_size = sizeof(attn_bias_gate_tensors),
                                    .q = {q, ATTN_F64, {S * H * D, D, H * D, 1}},
                                    .w = attn_in(w),
                                    .b = attn_in(b),
                                    .a = attn_in(a)};
}

static void forward(double *gates)
{
    attn_bias_gate_tensors t = inputs();
    t.gates = attn_out(gates);
    assert_int_equal(attn_bias_gate_forward(&rule, &t, NULL), ATTN_OK);
}

static double objective(void)
{
    double gates[B * H * S], sum = 0;
    forward(gates);
    for (int n = 0; n < B * H * S; n++) sum += grad[n] * gates[n];
    return sum;
}

static double slope(double *x)
{
    const double kept = *x, step = 1e-5;
    *x = kept + step;
    const double up = objective();
    *x = kept - step;
    const double result = (up - objective()) / (2 * step);
    *x = kept;
    return result;
}

static void test_gate(void **state)
{
    (void)state;
    double gates[B * H * S], dq[B * H * S * D], dw[D * 2 * W], db[2 * W], da[H];
    for (int i = 0; i < B * S * H * D; i++) q[i] = sin(i + 1.0);
    for (int i = 0; i < D * 2 * W; i++) w[i] = cos(i * 0.7);
    for (int i = 0; i < 2 * W; i++) b[i] = 0.1 * i;
    for (int i = 0; i < B * H * S; i++) grad[i] = cos(3.0 * i);
    a[0] = 0.7, a[1] = -1.2;
    forward(gates);
    for (int n = 0; n < B * H * S; n++) {
        double z[2] = {0};
        for (int k = 0; k < 2 * W; k++) {
            z[k / W] += b[k];
            for (int c = 0; c < D; c++) z[k / W] += q[((n / S / H * S + n % S) * H + n / S % H) * D + c] * w[c * 2 * W + k];
        }
        const double u = 1 / (1 + exp(-z[0])), r = 1 / (1 + exp(-z[1]));
        assert_near(gates[n], u * (r * a[n / S % H] - 1) + 2, 1e-14);
    }
    attn_bias_gate_tensors t = inputs();
    t.grad_gates = attn_in(grad), t.grad_q = attn_out(dq), t.grad_w = attn_out(dw), t.grad_b = attn_out(db),
    t.grad_a = attn_out(da);
    assert_int_equal(attn_bias_gate_backward(&rule, &t, NULL), ATTN_OK);
    for (int n = 0; n < B * H * S * D; n++)
        assert_near(dq[n], slope(&q[((n / D / S / H * S + n / D % S) * H + n / D / S % H) * D + n % D]), 1e-9);
    for (int n = 0; n < D * 2 * W; n++) assert_near(dw[n], slope(&w[n]), 1e-9);
    for (int n = 0; n < 2 * W; n++) assert_near(db[n], slope(&b[n]), 1e-9);
    for (int n = 0; n < H; n++) assert_near(da[n], slope(&a[n]), 1e-9);
}

/* Any strides and both types give the same numbers as dense tensors; absent gradients are not computed. */
static void test_gate_strides(void **state)
{
    (void)state;
    double w_transposed[2 * W * D], dense[B * H * S], dq[B * H * S * D], dw[D * 2 * W], dw_transposed[2 * W * D],
        dq_token[B * S * H * D];
    float gates[S * H * B], grad_single[S * H * B], b_single[2 * W];
    attn_bias_gate_tensors t = inputs();
    forward(dense);
    for (int i = 0; i < D * 2 * W; i++) w_transposed[i % (2 * W) * D + i / (2 * W)] = w[i];
    for (int i = 0; i < 2 * W; i++) b_single[i] = (float)b[i];
    t.w = (attn_input){w_transposed, ATTN_F64, {0, 0, 1, D}}, t.b = (attn_input){b_single, ATTN_F32, {0, 0, 0, 0}};
    t.gates = (attn_output){gates, ATTN_F32, {1, B, H * B, 0}};
    assert_int_equal(attn_bias_gate_forward(&rule, &t, NULL), ATTN_OK);
    for (int n = 0; n < B * H * S; n++) assert_near((double)gates[n % S * H * B + n / S % H * B + n / S / H], dense[n], 1e-6);
    t = inputs();
    t.grad_gates = attn_in(grad), t.grad_q = attn_out(dq), t.grad_w = attn_out(dw);
    assert_int_equal(attn_bias_gate_backward(&rule, &t, NULL), ATTN_OK);
    for (int n = 0; n < B * H * S; n++) grad_single[n % S * H * B + n / S % H * B + n / S / H] = (float)grad[n];
    t.grad_gates = (attn_input){grad_single, ATTN_F32, {1, B, H * B, 0}};
    t.grad_q = (attn_output){dq_token, ATTN_F64, {S * H * D, D, H * D, 1}};
    t.grad_w = (attn_output){dw_transposed, ATTN_F64, {0, 0, 1, D}};
    assert_int_equal(attn_bias_gate_backward(&rule, &t, NULL), ATTN_OK);
    for (int n = 0; n < B * H * S * D; n++)
        assert_near(dq_token[((n / D / S / H * S + n / D % S) * H + n / D / S % H) * D + n % D], dq[n], 1e-6);
    for (int i = 0; i < D * 2 * W; i++) assert_near(dw_transposed[i % (2 * W) * D + i / (2 * W)], dw[i], 1e-6);
}

/* Without channels there is nothing to do, however many rows there are. */
static void test_nothing(void **state)
{
    const int64_t many = INT64_C(1) << 56;
    const attn_input in = attn_in(ATTN_EMPTY);
    const attn_output out = attn_out(ATTN_EMPTY);
    (void)state;
    assert_int_equal(attn_position_resize(0, many, many, &in, &out, NULL), ATTN_OK);
    assert_int_equal(attn_position_resize_backward(0, many, many, &in, &out, NULL), ATTN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resize), cmocka_unit_test(test_gate),
                                       cmocka_unit_test(test_gate_strides), cmocka_unit_test(test_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
