/* SPDX-License-Identifier: MIT
 * test_hadamard.c - attn_hadamard equals its definition in ref/ within rounding, is its own inverse, and keeps scores; rejected
 * calls. */
#include "fails.h"

#include <math.h>

#include "attn/cache.h"
#include "attn_ref.h"
#include "draw.h"

enum { ROWS = 3, DIM = 192, STRIDE = 200 };

static double unit_of(attn_dtype type)
{
    return type == ATTN_F64 ? 0x1p-53 : type == ATTN_F32 ? 0x1p-24 : type == ATTN_F16 ? 0x1p-11 : 0x1p-8;
}

static void test_equals_ref(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    static const int64_t dims[] = {0, 1, 3, 8, 24, 64, 96, 128, DIM};
    static double x[ROWS * STRIDE], from[ROWS * STRIDE], to[ROWS * STRIDE], y[ROWS * STRIDE], expected[DIM];
    (void)state;
    for (int s = 0; s < 4; s++)
        for (int t = 0; t < 4; t++)
            for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
                const int64_t dim = dims[d];
                int64_t n = 1;
                while (dim && dim % (2 * n) == 0) n *= 2;
                for (int i = 0; i < ROWS * STRIDE; i++) x[i] = (double)draw_real();
                (void)attn_convert(ROWS * STRIDE, x, ATTN_F64, from, types[s], NULL);
                (void)attn_convert(ROWS * STRIDE, from, types[s], x, ATTN_F64, NULL);
                memset(to, 0x33, sizeof to);
                const attn_input src = {from, types[s], {0, 0, STRIDE, 1}};
                const attn_output dst = {to, types[t], {0, 0, STRIDE, 1}};
                assert_int_equal(attn_hadamard(ROWS, dim, &src, &dst, NULL), ATTN_OK);
                (void)attn_convert(ROWS * STRIDE, to, types[t], y, ATTN_F64, NULL);
                for (int i = 0; i < ROWS; i++) {
                    for (int64_t c = 0; c < dim; c += n) ref_hadamard(n, x + i * STRIDE + c, expected + c);
                    for (int64_t c = 0; c < dim; c++)
                        assert_true(fabs(y[i * STRIDE + c] - expected[c]) <= 16 * unit_of(types[t]) + 1e-14);
                }
                const unsigned char *after = (const unsigned char *)to + (size_t)dim * attn_dtype_size(types[t]);
                assert_true(after[0] == 0x33);
            }
}

/* Twice is nothing; and rotated queries and keys have the scores that they had. */
static void test_inverse(void **state)
{
    enum { N = 128 };
    double q[N], k[N], rotated_q[N], rotated_k[N], again[N], score = 0, rotated = 0;
    (void)state;
    for (int c = 0; c < N; c++) q[c] = (double)draw_real(), k[c] = (double)draw_real();
    const attn_input in[] = {{q, ATTN_F64, {0}}, {k, ATTN_F64, {0}}, {rotated_k, ATTN_F64, {0}}};
    const attn_output out[] = {{rotated_q, ATTN_F64, {0}}, {rotated_k, ATTN_F64, {0}}, {again, ATTN_F64, {0}}};
    for (int i = 0; i < 3; i++) assert_int_equal(attn_hadamard(1, N, &in[i], &out[i], NULL), ATTN_OK);
    for (int c = 0; c < N; c++) {
        assert_true(fabs(again[c] - k[c]) < 1e-14);
        score += q[c] * k[c], rotated += rotated_q[c] * rotated_k[c];
    }
    assert_true(fabs(score - rotated) < 1e-12);
}

static void test_rejected(void **state)
{
    float x[8] = {0}, y[8] = {7};
    (void)state;
    const attn_input in = attn_in(x), integers = {x, ATTN_I8, {0}};
    const attn_output out = attn_out(y), over = attn_out(x), blocks = {y, ATTN_Q8_0, {0}};
    FAILS(attn_hadamard(-1, 2, &in, &out, &error), ATTN_ERR_SHAPE, "hadamard: rows (-1) is negative");
    FAILS(attn_hadamard(2, -2, &in, &out, &error), ATTN_ERR_SHAPE, "hadamard: dim (-2) is negative");
    FAILS(attn_hadamard(2, 4, NULL, &out, &error), ATTN_ERR_ARGUMENT, "hadamard: src is NULL");
    FAILS(attn_hadamard(2, 4, &in, NULL, &error), ATTN_ERR_ARGUMENT, "hadamard: dst is NULL");
    FAILS(attn_hadamard(2, 4, &integers, &out, &error), ATTN_ERR_UNSUPPORTED,
          "hadamard: src is i8; it must be f32, f64, f16 or bf16");
    FAILS(attn_hadamard(2, 4, &in, &blocks, &error), ATTN_ERR_UNSUPPORTED,
          "hadamard: dst is q8_0; it must be f32, f64, f16 or bf16");
    FAILS(attn_hadamard(2, 4, &in, &over, &error), ATTN_ERR_STRIDE,
          "hadamard: dst and src share elements; an output must not overlap another tensor");
    assert_true(y[0] == 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_ref), cmocka_unit_test(test_inverse),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
