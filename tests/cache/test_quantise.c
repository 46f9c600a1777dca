/* SPDX-License-Identifier: MIT
 * test_quantise.c - attn_quantise equals its definition in ref/ bit for bit; rejected calls. */
#include "fails.h"

#include <math.h>

#include "attn/cache.h"
#include "attn_ref.h"
#include "draw.h"

enum { ROWS = 7, DIM = 150, STRIDE = 160 };

/* Rows of different magnitudes, one of zeros, and two with a NaN or an infinity. */
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
    static int8_t values[ROWS * DIM + 1];
    float scales[ROWS + 1];
    (void)state;
    for (int t = 0; t < 4; t++)
        for (int64_t dim = 0; dim <= DIM; dim += dim < 3 ? 1 : 49) {
            fill(x);
            (void)attn_convert(ROWS * STRIDE, x, ATTN_F64, stored, types[t], NULL);
            (void)attn_convert(ROWS * STRIDE, stored, types[t], x, ATTN_F64, NULL);
            memset(values, 0x55, sizeof values);
            scales[ROWS] = 77;
            const attn_input src = {stored, types[t], {0, 0, STRIDE, 1}};
            const attn_output to = attn_out(values), to_scales = attn_out(scales);
            assert_int_equal(attn_quantise(ROWS, dim, &src, &to, &to_scales, NULL), ATTN_OK);
            for (int64_t i = 0; i < ROWS; i++) {
                double expected[DIM + 1], scale = ref_quantise(dim, x + i * STRIDE, expected);
                assert_true(isnan(scale) ? isnan(scales[i]) : (double)scales[i] == scale);
                for (int64_t c = 0; c < dim; c++) {
                    assert_true(values[i * dim + c] == expected[c]);
                    /* The error is at most half a scale, plus the rounding of the scale itself, which is subnormal in row 4. */
                    const double off = fabs(x[i * STRIDE + c] - (double)scales[i] * values[i * dim + c]);
                    assert_true(isnan(scale) || off <= 0.5001 * scale + 64 * 0x1p-149);
                }
            }
            assert_true(values[ROWS * dim] == 0x55 && scales[ROWS] == 77);
        }
}

/* A row of f64 too large for an f32 scale has scale infinity and integers 0. */
static void test_too_large(void **state)
{
    const double x[2] = {1e300, 1};
    int8_t values[2];
    float scale;
    (void)state;
    const attn_input src = {x, ATTN_F64, {0, 0, 0, 0}};
    const attn_output to = attn_out(values), to_scale = attn_out(&scale);
    assert_int_equal(attn_quantise(1, 2, &src, &to, &to_scale, NULL), ATTN_OK);
    assert_true(isinf(scale) && values[0] == 0);
}

/* Rows of src in reverse order, and outputs with gaps, which stay untouched. */
static void test_strides(void **state)
{
    const float x[4] = {2, 127, -254, 1};
    int8_t values[6] = {7, 7, 7, 7, 7, 7};
    float scales[4] = {7, 7, 7, 7};
    (void)state;
    const attn_input src = {x + 2, ATTN_DTYPE_DEFAULT, {0, 0, -2, 1}};
    const attn_output to = {values, ATTN_I8, {0, 0, 3, 1}}, to_scales = {scales, ATTN_F32, {0, 0, 2, 1}};
    assert_int_equal(attn_quantise(2, 2, &src, &to, &to_scales, NULL), ATTN_OK);
    assert_true(values[0] == -127 && values[1] == 0 && values[2] == 7 && values[3] == 2 && values[4] == 127 && values[5] == 7);
    assert_true(scales[0] == 2 && scales[1] == 7 && scales[2] == 1 && scales[3] == 7);
}

static void test_rejected(void **state)
{
    float x[4] = {0}, scales[2] = {7, 7};
    int8_t values[4] = {7, 7, 7, 7};
    (void)state;
#define REJECTED(call, status, text)                                                                                               \
    do {                                                                                                                           \
        FAILS(call, status, text);                                                                                                 \
        assert_true(values[0] == 7 && scales[0] == 7);                                                                             \
    } while (0)
#define QUANTISE(rows, dim, src, to, to_scales) attn_quantise(rows, dim, src, to, to_scales, &error)
    const attn_input in = attn_in(x), integers = {x, ATTN_I8, {0, 0, 0, 0}}, far = {x, ATTN_F32, {0, 0, INT64_MAX, 1}},
                     gapped = {x, ATTN_F32, {0, 0, 1, 2}}, none = {NULL, ATTN_DTYPE_DEFAULT, {0, 0, 0, 0}};
    const attn_output to = attn_out(values), to_scales = attn_out(scales), over = attn_out(x),
                      wide = {scales, ATTN_F64, {0, 0, 0, 0}}, one = {values, ATTN_I8, {0, 0, 1, 1}},
                      unsigned_to = {values, ATTN_U8, {0, 0, 0, 0}}, missing = attn_out(NULL);
    REJECTED(QUANTISE(-1, 2, &in, &to, &to_scales), ATTN_ERR_SHAPE, "quantise: rows (-1) is negative");
    REJECTED(QUANTISE(2, -2, &in, &to, &to_scales), ATTN_ERR_SHAPE, "quantise: dim (-2) is negative");
    REJECTED(QUANTISE(INT64_MAX, 2, &in, &to, &to_scales), ATTN_ERR_SHAPE,
             "quantise: src is too large: its bytes overflow 64 bits");
    REJECTED(QUANTISE(2, 2, &far, &to, &to_scales), ATTN_ERR_SHAPE,
             "quantise: src.stride[2] (9223372036854775807) times its size (2) overflows 64-bit addresses");
    REJECTED(QUANTISE(2, 2, &integers, &to, &to_scales), ATTN_ERR_UNSUPPORTED,
             "quantise: src is i8; it must be f32, f64, f16 or bf16");
    REJECTED(QUANTISE(2, 2, &in, &unsigned_to, &to_scales), ATTN_ERR_UNSUPPORTED,
             "quantise: values is u8; it must be i8, f8 or blocks");
    REJECTED(QUANTISE(2, 2, &in, &to, &wide), ATTN_ERR_UNSUPPORTED, "quantise: scales is f64; it must be f32");
    REJECTED(QUANTISE(2, 2, &gapped, &to, &to_scales), ATTN_ERR_STRIDE,
             "quantise: src.stride[3] is 2; the last axis must be contiguous (1)");
    REJECTED(QUANTISE(2, 2, &in, &one, &to_scales), ATTN_ERR_STRIDE,
             "quantise: values overlaps itself: stride[3] is 1 and the axes with smaller strides span 2 elements");
    REJECTED(QUANTISE(2, 2, &in, &over, &to_scales), ATTN_ERR_STRIDE,
             "quantise: values and src share elements; an output must not overlap another tensor");
    REJECTED(QUANTISE(2, 2, NULL, &to, &to_scales), ATTN_ERR_ARGUMENT, "quantise: src is NULL");
    REJECTED(QUANTISE(2, 2, &none, &to, &to_scales), ATTN_ERR_ARGUMENT, "quantise: src is missing");
    REJECTED(QUANTISE(2, 2, &in, NULL, &to_scales), ATTN_ERR_ARGUMENT, "quantise: values is NULL");
    REJECTED(QUANTISE(2, 2, &in, &to, &missing), ATTN_ERR_ARGUMENT, "quantise: scales is NULL");
    const attn_input nothing = attn_in(ATTN_EMPTY);
    const attn_output nowhere = attn_out(ATTN_EMPTY);
    REJECTED(QUANTISE(2, 2, &nothing, &to, &to_scales), ATTN_ERR_ARGUMENT, "quantise: src is ATTN_EMPTY and has elements");
    assert_int_equal(attn_quantise(2, 0, &nothing, &nowhere, &to_scales, NULL), ATTN_OK); /* rows of no channels have scale 0 */
    assert_true(scales[0] == 0 && scales[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equals_ref), cmocka_unit_test(test_too_large),
                                       cmocka_unit_test(test_strides), cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
