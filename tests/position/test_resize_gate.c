/* SPDX-License-Identifier: MIT
 * test_resize_gate.c - tables stretched to other sizes, and the gate of a bias: known numbers, the transpose, differences. */
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
    const double x[3] = {0, 8, 24}, want[6] = {0, 2, 6, 12, 20, 24};
    double y[6], same[3];
    assert_int_equal(attn_position_resize(ATTN_F64, 1, 3, x, 6, y, NULL), ATTN_OK);
    for (int t = 0; t < 6; t++) assert_near(y[t], want[t], 1e-14);
    assert_int_equal(attn_position_resize(ATTN_F64, 1, 3, x, 3, same, NULL), ATTN_OK);
    for (int t = 0; t < 3; t++) assert_true(same[t] == x[t]);
    assert_int_equal(attn_position_resize(ATTN_F64, 1, 3, x, 0, NULL, NULL), ATTN_ERR_ARGUMENT);
    /* The gradient is the transpose: <resize(x), g> = <x, resize_backward(g)>, for stretching and shrinking, in f32 too. */
    enum { D = 3, N = 11 };
    for (int rows = 1; rows <= N; rows += 5)
        for (int rows_y = 1; rows_y <= N; rows_y += 2) {
            double a[N * D], b[N * D], g[N * D], dx[N * D], there = 0, back = 0;
            float single[N * D], made[N * D];
            for (int i = 0; i < N * D; i++) a[i] = sin(i + 1.0), g[i] = cos(2.0 * i), single[i] = (float)a[i];
            assert_int_equal(attn_position_resize(ATTN_F64, D, rows, a, rows_y, b, NULL), ATTN_OK);
            assert_int_equal(attn_position_resize_backward(ATTN_F64, D, rows, rows_y, g, dx, NULL), ATTN_OK);
            assert_int_equal(attn_position_resize(ATTN_F32, D, rows, single, rows_y, made, NULL), ATTN_OK);
            for (int i = 0; i < rows_y * D; i++) there += b[i] * g[i], assert_near((double)made[i], b[i], 0x1p-23);
            for (int i = 0; i < rows * D; i++) back += a[i] * dx[i];
            assert_near(there, back, 1e-13);
        }
}

enum { B = 2, H = 2, S = 3, D = 4, W = 3 };
static double q[B * S * H * D], w[D * 2 * W], b[2 * W], a[H], grad[B * H * S];
static const attn_bias_gate rule = {.struct_size = sizeof rule,
                                    .dtype = ATTN_F64,
                                    .batch = B,
                                    .heads = H,
                                    .len_q = S,
                                    .dim = D,
                                    .width = W,
                                    .w = w,
                                    .b = b,
                                    .a = a};

static double objective(void)
{
    double gates[B * H * S], sum = 0;
    assert_int_equal(attn_bias_gate_forward(&rule, &(attn_input){q, ATTN_F64, {S * H * D, D, H * D, 1}}, gates, NULL), ATTN_OK);
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
    assert_int_equal(attn_bias_gate_forward(&rule, &(attn_input){q, ATTN_F64, {S * H * D, D, H * D, 1}}, gates, NULL), ATTN_OK);
    for (int n = 0; n < B * H * S; n++) {
        double z[2] = {0};
        for (int k = 0; k < 2 * W; k++) {
            z[k / W] += b[k];
            for (int c = 0; c < D; c++) z[k / W] += q[((n / S / H * S + n % S) * H + n / S % H) * D + c] * w[c * 2 * W + k];
        }
        const double u = 1 / (1 + exp(-z[0])), r = 1 / (1 + exp(-z[1]));
        assert_near(gates[n], u * (r * a[n / S % H] - 1) + 2, 1e-14);
    }
    assert_int_equal(
        attn_bias_gate_backward(&rule, &(attn_input){q, ATTN_F64, {S * H * D, D, H * D, 1}}, grad, dq, dw, db, da, NULL), ATTN_OK);
    for (int n = 0; n < B * H * S * D; n++)
        assert_near(dq[n], slope(&q[((n / D / S / H * S + n / D % S) * H + n / D / S % H) * D + n % D]), 1e-9);
    for (int n = 0; n < D * 2 * W; n++) assert_near(dw[n], slope(&w[n]), 1e-9);
    for (int n = 0; n < 2 * W; n++) assert_near(db[n], slope(&b[n]), 1e-9);
    for (int n = 0; n < H; n++) assert_near(da[n], slope(&a[n]), 1e-9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_resize), cmocka_unit_test(test_gate)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
