/* SPDX-License-Identifier: MIT
 *
 * test_backward.c - backward against ref/ on 500 random combinations of all options for each storage type: every gradient within
 * the bound on every instruction set, and the same bits for any number of threads.  Elements that no query may see are NaN.
 */
#include "test.h"

#include "combination/outcome.h"

#include <math.h>

enum { SEEDS = CASES(500), FIRST = 5000 };

static void compare(attn_dtype dtype)
{
    double worst = 0;
    for (uint64_t seed = FIRST; seed < FIRST + SEEDS; seed++)
        worst = fmax(worst, outcome_drawn_fraction(seed, dtype, 0, ATTN_BACKWARD, 1));
    print_message("backward in %s: at most %.3f of the bound\n", attn_dtype_name(dtype), worst);
    assert_true(worst > 0.01); /* a bound that is never approached tests nothing */
}

static void test_types(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    (void)state;
    for (int t = 0; t < 4; t++) compare(types[t]);
}

static void test_same_bits(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
    static const int thread_counts[] = {2, 3, 5, 8};
    (void)state;
    for (uint64_t seed = FIRST; seed < FIRST + SEEDS; seed += 3)
        outcome_drawn_bits(seed, types[seed % 4], 0, ATTN_BACKWARD, thread_counts, sizeof thread_counts / sizeof *thread_counts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_types), cmocka_unit_test(test_same_bits)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the other tests use one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
