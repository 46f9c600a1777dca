/* SPDX-License-Identifier: MIT
 *
 * test_bias_table.c - biases by distance (T5, clipped) with random combinations of all other options and score kinds, in every
 * storage type: all operations against ref/ within the bound on every instruction set, backward against differences, the same bits
 * for any number of threads; and against the functions of position.h.
 */
#include "test.h"

#include "attn/position.h"
#include "combination/differences.h"
#include "combination/outcome.h"
#include "testing/random/share.h"

#include <math.h>

enum { SEEDS = CASES(300), FIRST = 60000 };

static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};

/* The largest fraction of the bound that an operation reaches, on any instruction set. */
static double compare(uint64_t seed, attn_dtype dtype, attn_op op, int flags)
{
    return outcome_drawn_fraction(seed, dtype, TABLE | flags, op, 1);
}

static void test_types(void **state)
{
    double forward[4] = {0}, backward[4] = {0};
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)share_of_cases(SEEDS); n++) {
        const int flags = n % 3 ? 0 : KIND;
        forward[n % 4] = fmax(forward[n % 4], compare(FIRST + n, types[n % 4], ATTN_FORWARD, flags));
        backward[n % 4] = fmax(backward[n % 4], compare(FIRST + n, types[n % 4], ATTN_BACKWARD, flags));
    }
    for (int t = 0; t < 4; t++) {
        print_message("%s: at most %.4f of the bound forward, %.4f backward\n", attn_dtype_name(types[t]), forward[t], backward[t]);
        assert_true(forward[t] > 1e-4 && backward[t] > 1e-4); /* a bound that is never approached tells nothing */
    }
}

/* Forward mode and double backward, which treat the table as a constant. */
static void test_beyond(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 60; n++) {
        (void)compare(FIRST + 5000 + n, types[n % 2], ATTN_JVP, 0);
        (void)compare(FIRST + 5000 + n, types[n % 2], ATTN_DOUBLE_BACKWARD, 0);
    }
}

/* ---- differences in f64 ---- */

/* The gradient of the table only. */
static void test_differences(void **state)
{
    int compared = 0;
    (void)state;
    for (uint64_t seed = FIRST + 20000; seed < FIRST + 20000 + 100; seed++) {
        combination c;
        combination_draw(&c, seed, ATTN_F64, FINITE | TABLE);
        double off = differences_off_by(&c, seed, TENSOR(bias_table));
        if (off > 1) fail_msg("%s: %g times the error that differences allow", c.text, off);
        compared += off >= 0;
        combination_free(&c);
    }
    assert_true(compared > 40);
}

static void test_same_bits(void **state)
{
    static const int thread_counts[] = {2, 3, 8};
    (void)state;
    for (uint64_t n = 0; n < SEEDS; n += 10)
        outcome_drawn_bits(FIRST + 10000 + n, types[n % 4], TABLE, ATTN_BACKWARD, thread_counts,
                           sizeof thread_counts / sizeof *thread_counts);
}

/* Attention with the table equals attention with the bias that attn_distance_bias_fill writes; also in decode, and at the farthest
 * positions. */
static void test_as_a_bias(void **state)
{
    enum { H = 2, KEYS = 300, D = 8, REACH = 20 };
    static const int64_t offsets[] = {0, 280, -5, 1000, -1000}, queries[] = {1, 3, 40};
    static float q[H][40][D], k[H][KEYS][D], v[H][KEYS][D], o[2][H][40][D], table[H][2 * REACH + 1], bias[H][40][KEYS];
    random_state r = random_from(7);
    (void)state;
    for (size_t i = 0; i < sizeof q / sizeof(float); i++) ((float *)q)[i] = (float)random_signed(&r);
    for (size_t i = 0; i < sizeof k / sizeof(float); i++)
        ((float *)k)[i] = (float)random_signed(&r), ((float *)v)[i] = (float)random_signed(&r);
    for (size_t i = 0; i < sizeof table / sizeof(float); i++) ((float *)table)[i] = 3 * (float)random_signed(&r);
    for (size_t n = 0; n < sizeof queries / sizeof *queries; n++)
        for (size_t m = 0; m < sizeof offsets / sizeof *offsets; m++)
            for (int kind = 0; kind < 2; kind++) {
                const int64_t Sq = queries[n], qh = 40 * D;
                attn_distance_bias rule = {.struct_size = sizeof rule, .kind = (attn_distance_kind)kind, .heads = H};
                attn_problem p = {.struct_size = sizeof p, .shape = {1, H, H, Sq, KEYS, D, D}};
                attn_tensors a = {
                    .struct_size = sizeof a, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .offset_q = attn_in(&offsets[m])};
                rule.max_distance = kind == ATTN_DISTANCE_CLIPPED ? REACH : 0;
                rule.len_q = Sq, rule.len_kv = KEYS, rule.offset_q = offsets[m];
                p.bias_table = (attn_bias_table){.kind = rule.kind, .max_distance = rule.max_distance};
                a.q.stride[0] = H * qh, a.q.stride[1] = qh, a.q.stride[2] = D, a.q.stride[3] = 1;
                a.bias_table = attn_in(table), a.o = attn_out(o[0]);
                memcpy(a.o.stride, a.q.stride, sizeof a.o.stride);
                assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
                assert_int_equal(attn_distance_bias_fill(&rule, &a.bias_table, &(attn_output){bias, ATTN_F32, {0, 0, 0, 0}}, NULL),
                                 ATTN_OK);
                p.bias_table = (attn_bias_table){0};
                a.bias_table = (attn_input){0}, a.bias = attn_in(bias), a.o.data = o[1];
                assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
                for (int h = 0; h < H; h++)
                    for (int64_t i = 0; i < Sq; i++)
                        for (int c = 0; c < D; c++) assert_true(fabsf(o[0][h][i][c] - o[1][h][i][c]) < 2e-6F);
            }
    const int64_t ends[] = {(int64_t)1 << 60, -((int64_t)1 << 60)}; /* farther positions are rejected */
    for (int e = 0; e < 2; e++) {                                   /* one number for all keys changes nothing */
        attn_problem p = {.struct_size = sizeof p, .shape = {1, H, H, 40, KEYS, D, D}};
        attn_tensors a = {.struct_size = sizeof a,
                          .q = attn_in(q),
                          .k = attn_in(k),
                          .v = attn_in(v),
                          .offset_q = attn_in(&ends[e]),
                          .bias_table = attn_in(table),
                          .o = attn_out(o[0])};
        p.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_CLIPPED, .max_distance = REACH};
        assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
        p.bias_table = (attn_bias_table){0};
        a.bias_table = (attn_input){0}, a.o = attn_out(o[1]);
        assert_int_equal(attn_compute(&p, &a, NULL), ATTN_OK);
        for (size_t i = 0; i < sizeof o[0] / sizeof(float); i++)
            assert_true(fabsf(((float *)o[0])[i] - ((float *)o[1])[i]) < 2e-6F);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_beyond),
                                       cmocka_unit_test(test_differences), cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_as_a_bias)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the others have one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
