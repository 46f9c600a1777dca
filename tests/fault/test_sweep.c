/* SPDX-License-Identifier: MIT
 * test_sweep.c - the list of cases of `attn check` when any one allocation fails: it is not created, nothing leaks or is freed
 * twice.
 */
#include "fault.h"
#include "test.h"

#include "testing/case/sweep.h"

static void test_each_allocation(void **state)
{
    (void)state;
    int failed = 1, rejected = 0;
    for (int n = 1; failed; n++) {
        sweep cases;
        const long before = fault_live();
        fault_arm(n);
        const int made = sweep_create(&cases, (sweep_tile){12, 64}, 1, 0);
        failed = fault_disarm();
        assert_int_equal(made, !failed);
        rejected += failed;
        sweep_destroy(&cases);
        assert_int_equal(fault_live(), before);
    }
    assert_true(rejected > 1); /* the list is reallocated as it grows */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
