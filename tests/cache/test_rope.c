/* SPDX-License-Identifier: MIT
 * test_rope.c - rotary embedding: known vectors, property P21 of docs/coverage.md, rejected calls. */
#include "test.h"

#include <math.h>

#include "attn/position.h"
#include "draw.h"

static void apply(const attn_rope *rope, int64_t channels, const double *x, double *y, int64_t position)
{
    const int64_t shape[4] = {1, 1, 1, channels};
    const attn_input from = {x, ATTN_F64, {0, 0, 0, 0}}, at = attn_in(&position);
    const attn_output to = {y, ATTN_F64, {0, 0, 0, 0}};
    assert_int_equal(attn_rope_apply(rope, shape, &from, &at, &to, NULL), ATTN_OK);
}

static void test_vectors(void **state)
{
    const double q[4] = {1, 0, 1, 0}, small[4] = {-.4161, .9093, .9801, .1987}, usual[4] = {-.4161, .9093, .9998, .0200};
    attn_rope rope = {.struct_size = sizeof rope, .base = 100};
    double y[4];
    (void)state;
    apply(&rope, 4, q, y, 2);
    for (int c = 0; c < 4; c++) assert_true(fabs(y[c] - small[c]) < 5e-5);
    rope.base = 0;
    apply(&rope, 4, q, y, 2);
    for (int c = 0; c < 4; c++) assert_true(fabs(y[c] - usual[c]) < 5e-5);
    /* Half-split pairs are interleaved pairs in another channel order. */
    const double halves[4] = {1, 1, 0, 0};
    rope.pairs = ATTN_ROPE_PAIRS_HALVES;
    apply(&rope, 4, halves, y, 2);
    for (int c = 0; c < 4; c++) assert_true(fabs(y[c] - usual[c % 2 * 2 + c / 2]) < 5e-5);
}

/* Norms are preserved, position 0 is the identity, dot products depend on the distance only, the inverse is the transpose. */
static void test_properties(void **state)
{
    enum { D = 16 };
    (void)state;
    for (int pairs = 0; pairs < 2; pairs++)
        for (int64_t rotary = 4; rotary <= D; rotary += 4) {
            attn_rope rope = {.struct_size = sizeof rope, .pairs = (attn_rope_pairs)pairs, .dim_rotary = rotary, .stretch = 2};
            double q[D], k[D], a[D], b[D], c[D], d[D], norm = 0, norm_after = 0, near = 0, far = 0;
            for (int i = 0; i < D; i++) q[i] = (double)draw_real(), k[i] = (double)draw_real();
            apply(&rope, D, q, a, 0);
            for (int i = 0; i < D; i++) assert_true(a[i] == q[i]);
            apply(&rope, D, q, a, 9);
            apply(&rope, D, k, b, 4);
            apply(&rope, D, q, c, 1009);
            apply(&rope, D, k, d, 1004);
            for (int i = 0; i < D; i++) {
                norm += q[i] * q[i], norm_after += a[i] * a[i];
                near += a[i] * b[i], far += c[i] * d[i];
                if (i >= rotary) assert_true(a[i] == q[i]);
            }
            assert_true(fabs(norm - norm_after) < 1e-13);
            assert_true(fabs(near - far) < 1e-12);
            rope.inverse = 1;
            apply(&rope, D, a, a, 9); /* in place */
            for (int i = 0; i < D; i++) assert_true(fabs(a[i] - q[i]) < 1e-14);
        }
}

static void test_rejected(void **state)
{
    const int64_t shape[4] = {1, 1, 1, 4};
    double x[4] = {0}, y[4];
    const attn_input good = {x, ATTN_F64, {0, 0, 0, 0}};
    const attn_output to = {y, ATTN_F64, {0, 0, 0, 0}};
    attn_error error;
    (void)state;
#define REJECTED(change, text)                                                                                                     \
    do {                                                                                                                           \
        attn_rope rope = {.struct_size = sizeof rope};                                                                             \
        attn_input from = {x, ATTN_F64, {0, 0, 0, 0}};                                                                             \
        change;                                                                                                                    \
        assert_int_not_equal(attn_rope_apply(&rope, shape, &from, NULL, &to, &error), ATTN_OK);                                    \
        assert_string_equal(error.message, text);                                                                                  \
    } while (0)
    REJECTED(rope.struct_size = 1, "attn_rope.struct_size is 1; set it to sizeof(attn_rope)");
    REJECTED(rope.pairs = (attn_rope_pairs)2, "rope.pairs is 2; known: 0 (interleaved), 1 (halves)");
    REJECTED(rope.dim_rotary = 6, "rope.dim_rotary is 6; it must be between 0 and 4, the channels");
    REJECTED(rope.dim_rotary = 3, "rope rotates 3 channels; pairs need an even number");
    REJECTED(rope.base = -1, "rope.base is -1; it must be above 0 and finite (0 for 10000)");
    REJECTED(rope.stretch = INFINITY, "rope.stretch is inf; it must be above 0 and finite (0 for 1)");
    REJECTED(rope.inverse = 2, "rope.inverse is 2; it must be 0 or 1");
    REJECTED(rope.reserved[1] = 5, "rope.reserved[1] is 5; it must be 0");
    REJECTED(from.dtype = ATTN_U8, "rope: x is u8; it must be f32, f64, f16 or bf16");
    REJECTED(from.stride[3] = 2, "rope: x.stride[3] is 2; the last axis must be contiguous (1)");
    assert_int_equal(attn_rope_apply(NULL, shape, &good, NULL, &to, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "rope is NULL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_vectors), cmocka_unit_test(test_properties),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
