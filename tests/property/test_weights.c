/* SPDX-License-Identifier: MIT
 *
 * test_weights.c - what holds for weights and outputs of any inputs: properties P1, P2, P3, P7, P11 and P25 of docs/coverage.md.
 */
#include "attend.h"

#include <math.h>

#include "testing/random/normal.h"

static const attn_shape shape = {2, 4, 2, 37, 45, 24, 19};

#define FOR_EACH_ROW(a, b, h, i)                                                                                                   \
    for (int64_t b = 0; b < (a)->problem.shape.batch; b++)                                                                         \
        for (int64_t h = 0; h < (a)->problem.shape.heads_q; h++)                                                                   \
            for (int64_t i = 0; i < (a)->problem.shape.len_q; i++)

/* Drops half of the keys at random, and all keys of query 3. */
static void drop_half(attend *a, uint64_t seed)
{
    random_state random = {seed};
    a->tensors.mask.data = ATTN_LATER;
    FOR_EACH_ROW(a, b, h, i)
    for (int64_t j = 0; j < a->problem.shape.len_kv; j++) *mask_at(a, b, h, i, j) = i != 3 && random_below(&random, 2);
}

static void p1_weights_are_probabilities(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, shape, 1);
        drop_half(a, 2);
        attend_run(a);
        FOR_EACH_ROW(a, b, h, i)
        {
            double sum = 0;
            for (int64_t j = 0; j < shape.len_kv; j++) {
                const double w = get(a, WEIGHTS, b, h, i, j);
                assert_true(w >= 0 && w <= 1 + 1e-6);
                sum += w;
            }
            assert_close(sum, i == 3 ? 0 : 1, v->dtype == ATTN_F64 ? 1e-14 : 4e-6, i == 3 ? 0 : 1);
        }
        attend_destroy(a);
    }
}

static void p2_dropped_weights_are_zero(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 3);
        drop_half(a, 4);
        a->problem.mask.causal = 1;
        a->problem.mask.window = 1;
        a->problem.mask.window_left = 20;
        a->problem.mask.window_right = -1;
        attend_run(a);
        FOR_EACH_ROW(a, b, h, i)
        for (int64_t j = 0; j < shape.len_kv; j++) {
            const int seen = *mask_at(a, b, h, i, j) && j <= i && j >= i - 20;
            const double w = get(a, WEIGHTS, b, h, i, j);
            if (seen) assert_true(w > 0);
            else assert_true(w == 0 && !signbit(w));
        }
        attend_destroy(a);
    }
}

/* A number added to all scores of a query changes nothing but lse. */
static void p3_shift_of_scores(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 0)
    {
        attend *a = attend_create(v, shape, 5), *shifted = attend_copy(a);
        random_state random = {6};
        shifted->tensors.bias.data = ATTN_LATER;
        FOR_EACH_ROW(a, b, h, i)
        {
            const double shift = 10 * random_normal(&random);
            for (int64_t j = 0; j < shape.len_kv; j++) put(shifted, BIAS, b, h, i, j, shift);
        }
        attend_run(a);
        attend_run(shifted);
        FOR_EACH_ROW(a, b, h, i)
        {
            for (int64_t c = 0; c < shape.dim_v; c++)
                assert_close(get(a, O, b, h, i, c), get(shifted, O, b, h, i, c), 10 * v->rtol, 1);
            const double shift = get(shifted, BIAS, b, h, i, 0);
            assert_close(get(a, LSE, b, h, i, 0) + shift, get(shifted, LSE, b, h, i, 0), v->rtol, 10 + fabs(shift));
        }
        attend_destroy(a);
        attend_destroy(shifted);
    }
}

/* An output is a mean of values: it lies between the smallest and the largest visible value. */
static void p7_output_is_a_mean(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, shape, 7);
        drop_half(a, 8);
        attend_run(a);
        FOR_EACH_ROW(a, b, h, i)
        for (int64_t c = 0; c < shape.dim_v; c++) {
            double least = i == 3 ? 0 : INFINITY, greatest = -least;
            for (int64_t j = 0; j < shape.len_kv; j++)
                if (*mask_at(a, b, h, i, j)) {
                    least = fmin(least, get(a, V, b, h / 2, j, c));
                    greatest = fmax(greatest, get(a, V, b, h / 2, j, c));
                }
            const double o = get(a, O, b, h, i, c), slack = i == 3 ? 0 : v->rtol * 4;
            assert_true(o >= least - slack && o <= greatest + slack);
        }
        attend_destroy(a);
    }
}

/* One key: the output is its value, bit by bit, its weight is 1, and lse its score. */
static void p11_one_key(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, (attn_shape){2, 4, 2, 37, 1, 24, 19}, 9);
        attend_run(a);
        FOR_EACH_ROW(a, b, h, i)
        {
            assert_memory_equal(row_of(a, O, b, h, i), row_of(a, V, b, h / 2, 0), row_bytes(a, O));
            assert_true(get(a, WEIGHTS, b, h, i, 0) == 1);
            double score = 0;
            for (int64_t c = 0; c < 24; c++) score += get(a, Q, b, h, i, c) * get(a, K, b, h / 2, 0, c) / sqrt(24);
            assert_close(get(a, LSE, b, h, i, 0), score, v->rtol, 2 + fabs(score));
        }
        attend_destroy(a);
    }
}

static void assert_means(const attend *a, double rtol)
{
    FOR_EACH_ROW(a, b, h, i)
    for (int64_t c = 0; c < shape.dim_v; c++) {
        double mean = 0;
        for (int64_t j = 0; j < shape.len_kv; j++) mean += get(a, V, b, h / 2, j, c) / (double)shape.len_kv;
        assert_close(get(a, O, b, h, i, c), mean, rtol, 2);
        assert_close(get(a, WEIGHTS, b, h, i, 0), 1 / (double)shape.len_kv, rtol, 1);
    }
}

/* Equal scores: queries of zeros, keys of zeros, all keys the same, or scale 0. */
static void p11_equal_scores_average(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    for (int which = 0; which < 4; which++) {
        attend *a = attend_create(v, shape, 10);
        for (int64_t b = 0; b < shape.batch; b++)
            for (int64_t c = 0; c < shape.dim_qk; c++) {
                for (int64_t h = 0; h < shape.heads_q && which == 0; h++)
                    for (int64_t i = 0; i < shape.len_q; i++) put(a, Q, b, h, i, c, 0);
                for (int64_t g = 0; g < shape.heads_kv && which < 3; g++)
                    for (int64_t j = 0; j < shape.len_kv && which > 0; j++)
                        put(a, K, b, g, j, c, which == 1 ? 0 : get(a, K, b, g, 0, c));
            }
        if (which == 3) a->problem.score = (attn_score){.scale_kind = ATTN_SCALE_VALUE, .scale = 0};
        attend_run(a);
        assert_means(a, v->rtol);
        attend_destroy(a);
    }
}

/* If one key dominates, the output is its value. */
static void p11_one_hot_selects(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, shape, 11);
        a->tensors.bias.data = ATTN_LATER;
        FOR_EACH_ROW(a, b, h, i) put(a, BIAS, b, h, i, (7 * i + h) % shape.len_kv, 1000);
        attend_run(a);
        FOR_EACH_ROW(a, b, h, i)
        assert_memory_equal(row_of(a, O, b, h, i), row_of(a, V, b, h / 2, (7 * i + h) % shape.len_kv), row_bytes(a, O));
        attend_destroy(a);
    }
}

/* Inputs of ten times the usual size, wide heads, scores around 1000 and -1000: outputs are finite, and weights sum to 1. */
static void p25_finite_for_large_scores(void **state)
{
    (void)state;
    FOR_EACH_VARIANT(v, 1)
    {
        attend *a = attend_create(v, (attn_shape){1, 2, 2, 40, 128, 512, 32}, 12);
        for (int64_t h = 0; h < 2; h++)
            for (int64_t c = 0; c < 512; c++) {
                for (int64_t i = 0; i < 40; i++) put(a, Q, 0, h, i, c, 10 * get(a, Q, 0, h, i, c));
                for (int64_t j = 0; j < 128; j++) put(a, K, 0, h, j, c, 10 * get(a, K, 0, h, j, c));
            }
        for (int sign = -1; sign <= 1; sign += 2) {
            a->problem.score = (attn_score){.scale_kind = ATTN_SCALE_VALUE, .scale = sign * 0.4};
            attend_run(a);
            double largest = 0;
            FOR_EACH_ROW(a, b, h, i)
            {
                double sum = 0;
                largest = fmax(largest, fabs(get(a, LSE, b, h, i, 0)));
                for (int64_t c = 0; c < 32; c++) assert_true(fabs(get(a, O, b, h, i, c)) < 10);
                for (int64_t j = 0; j < 128; j++) sum += get(a, WEIGHTS, b, h, i, j);
                assert_close(sum, 1, 4e-6, 1);
            }
            assert_true(largest > 1000);
        }
        attend_destroy(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p1_weights_are_probabilities),
        cmocka_unit_test(p2_dropped_weights_are_zero),
        cmocka_unit_test(p3_shift_of_scores),
        cmocka_unit_test(p7_output_is_a_mean),
        cmocka_unit_test(p11_one_key),
        cmocka_unit_test(p11_equal_scores_average),
        cmocka_unit_test(p11_one_hot_selects),
        cmocka_unit_test(p25_finite_for_large_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
