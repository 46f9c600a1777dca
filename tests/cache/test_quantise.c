/* SPDX-License-Identifier: MIT
 * test_quantise.c - attn_quantise against its definition in ref/, to the bit, and what it refuses. */
#include "test.h"

#include <math.h>

#include "attn/cache.h"
#include "attn_ref.h"
#include "draw.h"

enum { ROWS = 7, DIM = 150, STRIDE = 160 };

/* Rows of every size of number, one of zeros, and ones that are not finite. */
static void fill(double *x)
{
    static const double size[ROWS] = {1, 1e-30, 3e4, 0, 1e-42, 5, 2};
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < STRIDE; c++) x[i * STRIDE + c] = size[i] * (double)draw_real();
    x[5 * STRIDE + 70] = NAN;
    x[6 * STRIDE + 149] = -INFINITY;
}

static void test_equals_ref(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    static double x[ROWS * STRIDE], stored[ROWS * STRIDE];
    static int8_t whole[ROWS * DIM + 1];
    float scales[ROWS + 1];
    (void)state;
    for (int t = 0; t < 4; t++)
        for (int64_t dim = 0; dim <= DIM; dim += dim < 3 ? 1 : 49) {
            fill(x);
            (void)attn_convert(stored, types[t], x, ATTN_F64, ROWS * STRIDE, NULL);
            (void)attn_convert(x, ATTN_F64, stored, types[t], ROWS * STRIDE, NULL);
            memset(whole, 0x55, sizeof whole);
            scales[ROWS] = 77;
            assert_int_equal(attn_quantise(ROWS, dim, stored, types[t], STRIDE, whole, scales, NULL), ATTN_OK);
            for (int64_t i = 0; i < ROWS; i++) {
                double expected[DIM + 1], scale = ref_quantise(dim, x + i * STRIDE, expected);
                assert_true(isnan(scale) ? isnan(scales[i]) : (double)scales[i] == scale);
                for (int64_t c = 0; c < dim; c++) {
                    assert_true(whole[i * dim + c] == expected[c]);
                    /* By at most half a scale, and the rounding of the scale itself, which is the smallest number's for row 4. */
                    const double off = fabs(x[i * STRIDE + c] - (double)scales[i] * whole[i * dim + c]);
                    assert_true(isnan(scale) || off <= 0.5001 * scale + 64 * 0x1p-149);
                }
            }
            assert_true(whole[ROWS * dim] == 0x55 && scales[ROWS] == 77);
        }
}

/* The largest numbers of f64, which no scale of f32 holds, are no numbers in i8. */
static void test_too_large(void **state)
{
    const double x[2] = {1e300, 1};
    int8_t whole[2];
    float scale;
    (void)state;
    assert_int_equal(attn_quantise(1, 2, x, ATTN_F64, 2, whole, &scale, NULL), ATTN_OK);
    assert_true(isinf(scale) && whole[0] == 0);
}

static void test_refused(void **state)
{
    float x[4] = {0}, scales[2] = {7, 7};
    int8_t whole[4] = {7, 7, 7, 7};
    attn_error error;
    (void)state;
#define REFUSED(call, status, text)                                                                                                \
    do {                                                                                                                           \
        assert_int_equal(call, status);                                                                                            \
        assert_string_equal(error.message, text);                                                                                  \
        assert_true(whole[0] == 7 && scales[0] == 7);                                                                              \
    } while (0)
    REFUSED(attn_quantise(-1, 2, x, ATTN_F32, 2, whole, scales, &error), ATTN_ERR_SHAPE, "quantise: rows (-1) is negative");
    REFUSED(attn_quantise(INT64_MAX, 2, x, ATTN_F32, 2, whole, scales, &error), ATTN_ERR_SHAPE,
            "quantise: 9223372036854775807 rows of 2 have more bytes than 64 bits count");
    REFUSED(attn_quantise(2, 2, x, ATTN_F32, INT64_MAX, whole, scales, &error), ATTN_ERR_SHAPE,
            "quantise: stride (9223372036854775807) times 2 rows overflows 64-bit addresses");
    REFUSED(attn_quantise(2, -2, x, ATTN_F32, 2, whole, scales, &error), ATTN_ERR_SHAPE, "quantise: dim (-2) is negative");
    REFUSED(attn_quantise(2, 2, x, ATTN_I8, 2, whole, scales, &error), ATTN_ERR_UNSUPPORTED,
            "quantise: src is i8; it must be f32, f64, f16 or bf16");
    REFUSED(attn_quantise(2, 2, x, ATTN_F32, 2, whole, NULL, &error), ATTN_ERR_ARGUMENT, "quantise: scales is NULL");
    REFUSED(attn_quantise(2, 2, NULL, ATTN_F32, 2, whole, scales, &error), ATTN_ERR_ARGUMENT, "quantise: src is NULL");
    REFUSED(attn_quantise(2, 2, x, ATTN_F32, 2, NULL, scales, &error), ATTN_ERR_ARGUMENT, "quantise: whole is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_ref), cmocka_unit_test(test_too_large),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
