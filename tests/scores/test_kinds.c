/* SPDX-License-Identifier: MIT
 *
 * test_kinds.c - every score kind on random combinations of all options, in every storage type: forward and backward against ref/
 * within the bound on every instruction set, backward against differences, and the same bits for any number of threads.  What no
 * query may see is poisoned.
 */
#include "test.h"

#include "combination/differences.h"
#include "combination/outcome.h"

#include <math.h>

enum { SEEDS = CASES(160), FIRST = 40000, KINDS = ATTN_SCORE_ADDITIVE };

static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};

static const char *const names[KINDS] = {"general", "metric", "cosine", "distance", "additive"};

/* The kind is that of the seed: KINDS of them in turn. */
static void draw(combination *c, uint64_t seed, attn_dtype dtype, int flags)
{
    problem_spec spec;
    random_problem(&spec, seed, dtype);
    combination_of(c, &spec, KIND | flags);
}

static void compare(uint64_t seed, attn_dtype dtype, attn_op op, double *worst)
{
    combination c;
    draw(&c, seed, dtype, MORE);
    *worst = fmax(*worst, outcome_fraction(&c, op, 1));
    combination_free(&c);
}

static void test_types(void **state)
{
    double forward[KINDS][4] = {{0}}, backward[KINDS][4] = {{0}};
    (void)state;
    for (uint64_t n = 0; n < SEEDS; n++) {
        const uint64_t kind = (FIRST + n) % KINDS, type = n / KINDS % 4;
        compare(FIRST + n, types[type], ATTN_FORWARD, &forward[kind][type]);
        compare(FIRST + n, types[type], ATTN_BACKWARD, &backward[kind][type]);
    }
    for (int k = 0; k < KINDS; k++)
        for (int t = 0; t < 4; t++) {
            print_message("%s in %s: at most %.4f of the bound forward, %.4f backward\n", names[k], attn_dtype_name(types[t]),
                          forward[k][t], backward[k][t]);
            assert_true(forward[k][t] > 1e-4 && backward[k][t] > 1e-4); /* a bound that is never approached tells nothing */
        }
}

/* ---- differences in f64 ---- */

static void test_differences(void **state)
{
    (void)state;
    for (uint64_t seed = FIRST + 20000; seed < FIRST + 20000 + 50; seed++) {
        combination c;
        draw(&c, seed, ATTN_F64, FINITE);
        double off = differences_off_by(&c, seed, DIFFERENCES_ALL);
        if (off > 1) fail_msg("%s, %s: %g times off what differences allow", c.text, names[seed % KINDS], off);
        combination_free(&c);
    }
}

static void test_same_bits(void **state)
{
    static const int crews[] = {2, 3, 8};
    (void)state;
    for (int n = 0; n < SEEDS; n += 7) {
        const uint64_t seed = (uint64_t)(FIRST + 10000 + n);
        combination c;
        draw(&c, seed, types[n % 4], MORE);
        outcome_same_bits(&c, ATTN_BACKWARD, crews, sizeof crews / sizeof *crews);
        combination_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_differences),
                                       cmocka_unit_test(test_same_bits)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the others have one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
