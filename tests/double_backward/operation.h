/* SPDX-License-Identifier: MIT
 *
 * operation.h - tests shared by forward mode and double backward: each type within the bound, and the same bits for any number of
 * threads.  A test program defines OPERATION, includes this file, and defines compare() and one test of its own. */
#ifndef ATTN_TESTS_SECOND_OPERATION_H
#define ATTN_TESTS_SECOND_OPERATION_H

#include "test.h"

#include "combination/bound.h"
#include "combination/combination.h"
#include "combination/outcome.h"

#include <float.h>
#include <math.h>

enum { SEEDS = CASES(250) };

static inline double unit(attn_dtype dtype) { return dtype == ATTN_F32 ? FLT_EPSILON / 2 : DBL_EPSILON / 2; }

static inline attn_output slot_of(const tensor *t)
{
    attn_output slot = {t->memory, t->layout.dtype, {0, 0, 0, 0}};
    memcpy(slot.stride, t->layout.stride, sizeof slot.stride);
    return slot;
}

/* The largest fraction of the bound, of random combinations with every instruction set. */
static double compare(attn_dtype dtype);

static void test_f32(void **state)
{
    (void)state;
    assert_true(compare(ATTN_F32) > 0.01); /* a bound that is never approached tells nothing */
}

static void test_f64(void **state)
{
    (void)state;
    assert_true(compare(ATTN_F64) > 0.01);
}

static void test_same_bits(void **state)
{
    static const int thread_counts[] = {2, 3, 5};
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed += 2)
        outcome_drawn_bits(seed, seed % 4 ? ATTN_F32 : ATTN_F64, 0, OPERATION, thread_counts,
                           sizeof thread_counts / sizeof *thread_counts);
}

/* The program: the tests above, and its own. */
static inline int operation_main(const struct CMUnitTest own)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_f64), cmocka_unit_test(test_same_bits),
                                       own};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the others have one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
