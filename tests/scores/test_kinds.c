/* SPDX-License-Identifier: MIT
 *
 * test_kinds.c - every score kind on random combinations of all options, in every storage type: forward and backward against ref/
 * within the bound on every instruction set, backward against differences, and the same bits for any number of threads.  Inputs
 * that no query sees are poisoned.
 */
#include "drawn.h"

enum { SEEDS = CASES(160), FIRST = 40000, KINDS = ATTN_SCORE_ADDITIVE };

static const char *const names[KINDS] = {"general", "metric", "cosine", "distance", "additive"};

/* The seed determines the kind: all KINDS in turn. */
static void draw(combination *c, uint64_t seed, attn_dtype dtype, int flags)
{
    problem_spec spec;
    random_problem(&spec, seed, dtype);
    combination_of(c, &spec, KIND | flags);
    assert_int_equal(c->problem.score.kind, ATTN_SCORE_GENERAL + seed % KINDS);
}

static const drawn_kinds all = {names, KINDS, FIRST, SEEDS, 1, draw};

static void test_types(void **state)
{
    (void)state;
    drawn_check_types(&all);
}

static void test_differences(void **state)
{
    (void)state;
    drawn_check_differences(&all, 50);
}

static void test_same_bits(void **state)
{
    static const int thread_counts[] = {2, 3, 8};
    (void)state;
    drawn_check_bits(&all, 7, thread_counts, sizeof thread_counts / sizeof *thread_counts);
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
