/* SPDX-License-Identifier: MIT
 * test_features.c - random features: orthogonality, seeds, strides, moments; that they estimate softmax; the clamped denominator.
 */
#include "linear_case.h"

#include <math.h>

enum { ROWS_OF = 8, DIM = 5, MANY = 4096 };

static attn_status rows_into(attn_random_rows rows, int64_t features, uint64_t seed, uint32_t draw, void *matrix)
{
    return attn_random_features(rows, features, DIM, seed, draw, &(attn_output){matrix, ATTN_F64, {0, 0, 0, 0}}, NULL);
}

static void test_orthogonal(void **state)
{
    double w[ROWS_OF][DIM], again[ROWS_OF][DIM], other[ROWS_OF][DIM];
    (void)state;
    assert_int_equal(rows_into(ATTN_RANDOM_ROWS_ORTHOGONAL, ROWS_OF, 1, 0, w), ATTN_OK);
    assert_int_equal(rows_into(ATTN_RANDOM_ROWS_ORTHOGONAL, ROWS_OF, 1, 0, again), ATTN_OK);
    assert_int_equal(rows_into(ATTN_RANDOM_ROWS_ORTHOGONAL, ROWS_OF, 1, 1, other), ATTN_OK);
    assert_memory_equal(w, again, sizeof w);
    assert_memory_not_equal(w, other, sizeof w);
    for (int a = 0; a < ROWS_OF; a++)
        for (int b = 0; b < a; b++) {
            double inner = 0, one = 0, two = 0;
            for (int c = 0; c < DIM; c++) inner += w[a][c] * w[b][c], one += w[a][c] * w[a][c], two += w[b][c] * w[b][c];
            if (a / DIM == b / DIM) assert_true(fabs(inner) <= 1e-14 * sqrt(one * two));
        }
}

/* The same numbers in any layout: column by column, with gaps, which stay untouched. */
static void test_strides(void **state)
{
    enum { GAP = ROWS_OF + 3 };
    double w[ROWS_OF][DIM], columns[DIM][GAP];
    float single[ROWS_OF][DIM];
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        const attn_random_rows rows = (attn_random_rows)kind;
        for (int c = 0; c < DIM; c++)
            for (int i = 0; i < GAP; i++) columns[c][i] = 77;
        assert_int_equal(rows_into(rows, ROWS_OF, 3, 0, w), ATTN_OK);
        assert_int_equal(attn_random_features(rows, ROWS_OF, DIM, 3, 0, &(attn_output){columns, ATTN_F64, {0, 0, 1, GAP}}, NULL),
                         ATTN_OK);
        assert_int_equal(attn_random_features(rows, ROWS_OF, DIM, 3, 0, &(attn_output){single, 0, {0, 0, 0, 0}}, NULL), ATTN_OK);
        for (int c = 0; c < DIM; c++)
            for (int i = 0; i < GAP; i++) assert_true(columns[c][i] == (i < ROWS_OF ? w[i][c] : 77));
        for (int i = 0; i < ROWS_OF; i++)
            for (int c = 0; c < DIM; c++) assert_true(fabs((double)single[i][c] - w[i][c]) < 1e-5);
    }
}

/* Mean and variance of 20480 normal numbers, within 6 standard deviations. */
static void test_normal(void **state)
{
    static double w[MANY][DIM];
    double mean = 0, square = 0;
    (void)state;
    assert_int_equal(rows_into(ATTN_RANDOM_ROWS_NORMAL, MANY, 5, 0, w), ATTN_OK);
    for (int i = 0; i < MANY; i++)
        for (int c = 0; c < DIM; c++) mean += w[i][c], square += w[i][c] * w[i][c];
    assert_true(fabs(mean) < 6 * sqrt((double)(MANY * DIM)));
    assert_true(fabs(square - MANY * DIM) < 6 * sqrt(2.0 * MANY * DIM));
}

/* FAVOR+ attention converges to softmax attention with the number of rows; this needs the scale d^-1/4. */
static void test_estimates_softmax(void **state)
{
    enum { LEN = 12, FEATURES = 16384 };
    linear_case c = {
        .problem = {.shape = {1, 1, 1, LEN, LEN, DIM, 3}, .features = ATTN_FEATURES_FAVOR, .random_features = FEATURES}};
    double o[LEN][3];
    (void)state;
    linear_case_draw(&c, ATTN_F64, 2);
    assert_int_equal(rows_into(ATTN_RANDOM_ROWS_ORTHOGONAL, FEATURES, 9, 0, c.data[T_OMEGA]), ATTN_OK);
    static const attn_input none;
    c.args.initial_state = c.args.initial_sum = none;
    linear_case_forward(&c, 0);
    const attn_problem softmax = {.struct_size = sizeof softmax, .shape = c.problem.shape};
    const attn_tensors tensors = {.struct_size = sizeof tensors,
                                  .q = {c.data[T_Q], ATTN_F64, {0, 0, 0, 0}},
                                  .k = attn_in(c.data[T_K]),
                                  .v = attn_in(c.data[T_V]),
                                  .o = attn_out(o)};
    assert_int_equal(attn_compute(&softmax, &tensors, NULL), ATTN_OK);
    for (int i = 0; i < LEN; i++)
        for (int d = 0; d < 3; d++) {
            const double error = linear_case_at(&c, T_O, i * 3 + d) - o[i][d];
            assert_true(fabs(error) < 6 / sqrt((double)FEATURES)); /* 6 deviations of a mean of positive weights near 1 */
        }
    linear_case_free(&c);
}

/* No feature is positive: the denominator is 0 and is clamped; no output and no gradient is NaN. */
static void test_guard(void **state)
{
    (void)state;
    for (int add = 0; add < 2; add++) {
        linear_case c = {.problem = {.shape = {1, 1, 1, 30, 30, 4, 4},
                                     .features = ATTN_FEATURES_RELU,
                                     .causal = 1,
                                     .denominator = add ? ATTN_DENOMINATOR_ADD : ATTN_DENOMINATOR_CLAMP,
                                     .epsilon = 0.01}};
        linear_case_draw(&c, ATTN_F32, 4);
        for (int i = 0; i < 60; i++) ((float *)c.data[T_Q])[i] = -1, c.exact[T_Q][i] = -1;
        linear_case_define(&c);
        linear_case_run(&c, 0);
        for (int i = 0; i < 60; i++) assert_true(linear_case_at(&c, T_O, i) == 0);
        for (int t = T_O; t < TENSORS; t++) assert_true(linear_case_error(&c, t) <= 1);
        linear_case_free(&c);
    }
}

/* Negative sizes have 0 features. */
static void test_counts(void **state)
{
    (void)state;
    for (int kind = ATTN_FEATURES_ELU1; kind <= ATTN_FEATURES_TRIGONOMETRIC; kind++) {
        assert_true(attn_features_count((attn_features)kind, 4, INT64_MIN) == 0);
        assert_true(attn_features_count((attn_features)kind, -4, 4) == 0);
        assert_true(attn_features_count((attn_features)kind, 4, 4) == (kind < ATTN_FEATURES_FOURIER ? 4 : 8));
    }
}

/* Strides of a tensor without elements are ignored: no address is computed from them. */
static void test_strides_of_nothing(void **state)
{
    static const int64_t strides[][4] = {{0, 0, INT64_MIN + 1, 1}, {INT64_MAX, 0, 3, 1}, {5, INT64_MIN, INT64_MAX, 1}};
    static float numbers[64];
    (void)state;
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        for (int form = ATTN_LINEAR_FORM_AUTO; form <= ATTN_LINEAR_FORM_RECURRENT; form++) {
            attn_linear_problem p = {.struct_size = sizeof p, .causal = 1, .form = (attn_linear_form)form};
            p.shape = (attn_shape){2, 2, 2, 3, 3, 4, 0};
            p.denominator = ATTN_DENOMINATOR_NONE;
            attn_linear_tensors t = {.struct_size = sizeof t, .q = attn_in(numbers), .k = attn_in(numbers)};
            attn_error error;
            t.v = attn_in(ATTN_EMPTY), t.o = attn_out(ATTN_EMPTY), t.initial_state = attn_in(ATTN_EMPTY);
            t.final_state = attn_out(ATTN_EMPTY);
            memcpy(t.v.stride, strides[i], sizeof t.v.stride);
            memcpy(t.o.stride, strides[i], sizeof t.o.stride);
            memcpy(t.initial_state.stride, strides[i], sizeof t.initial_state.stride);
            memcpy(t.final_state.stride, strides[i], sizeof t.final_state.stride);
            if (attn_linear_compute(&p, &t, &error)) fail_msg("%s", error.message);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orthogonal),        cmocka_unit_test(test_strides), cmocka_unit_test(test_normal),
        cmocka_unit_test(test_estimates_softmax), cmocka_unit_test(test_guard),   cmocka_unit_test(test_counts),
        cmocka_unit_test(test_strides_of_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
