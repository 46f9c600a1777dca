/* SPDX-License-Identifier: MIT
 * test_core.c - attn_plan_create, attn_compute and attn_pattern_set_create when any one allocation fails. */
#include "attn/mask.h"
#include "fault.h"
#include "small.h"

static attn_status create(small *s, attn_error *error)
{
    attn_plan *plan;
    attn_status status = attn_plan_create(&plan, &s->problem, &s->tensors, NULL, error);
    attn_plan_destroy(plan);
    return status;
}

static attn_status forward(small *s, attn_error *error) { return attn_compute(&s->problem, &s->tensors, error); }

/* Makes each allocation of `run` fail in turn; there are `count` of them.  texts: the message expected for each. */
static void each(attn_status (*run)(small *s, attn_error *error), int count, char texts[][240])
{
    for (int n = 1;; n++) {
        attn_error error;
        small s;
        small_init(&s);
        long before = fault_live();
        fault_arm(n);
        attn_status status = run(&s, &error);
        int failed = fault_disarm();
        assert_int_equal(fault_live(), before);
        if (!failed) {
            assert_int_equal(status, ATTN_OK);
            assert_int_equal(n - 1, count);
            return;
        }
        if (n > count) fail_msg("allocation %d; expected %d", n, count);
        assert_int_equal(status, ATTN_ERR_MEMORY);
        assert_int_equal(error.status, ATTN_ERR_MEMORY);
        assert_true(small_outputs_untouched(&s));
        assert_string_equal(error.message, texts[n - 1]);
    }
}

static void *measure(void *context, size_t bytes)
{
    *(size_t *)context = bytes;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static void test_each_allocation(void **state)
{
    char texts[2][240];
    size_t bytes = 0;
    attn_plan *plan;
    small s;
    (void)state;
    small_init(&s);
    s.options.allocator = (attn_allocator){measure, release, &bytes};
    assert_int_equal(attn_plan_create(&plan, &s.problem, &s.tensors, &s.options, NULL), ATTN_OK);
    (void)snprintf(texts[0], sizeof texts[0], "cannot allocate the %zu bytes of a plan", bytes);
    (void)snprintf(texts[1], sizeof texts[1], "cannot allocate a workspace of %zu bytes", attn_plan_workspace_size(plan));
    attn_plan_destroy(plan);
    each(create, 1, texts);  /* one block per object */
    each(forward, 2, texts); /* and a workspace */
}

/* A pattern set: whichever allocation fails, nothing leaks. */
static void test_pattern_set(void **state)
{
    const attn_pattern patterns[] = {{.kind = ATTN_PATTERN_CAUSAL}, {.kind = ATTN_PATTERN_CAUSAL_BOTTOM_RIGHT}};
    int failed = 1, n = 0;
    (void)state;
    while (failed) {
        attn_pattern_set *set;
        attn_error error;
        const long before = fault_live();
        fault_arm(++n);
        const attn_status status = attn_pattern_set_create(&set, 8, 8, 2, patterns, &error);
        failed = fault_disarm();
        assert_int_equal(status, failed ? ATTN_ERR_MEMORY : ATTN_OK);
        attn_pattern_set_destroy(set);
        assert_int_equal(fault_live(), before);
    }
    assert_true(n > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_allocation), cmocka_unit_test(test_pattern_set)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
