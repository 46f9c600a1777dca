/* SPDX-License-Identifier: MIT
 *
 * test_limit.c - options.workspace_limit: the number in the message of a rejected plan is the least limit that a plan is accepted
 * with, for attention of every kind of walk, ragged batches of several walks, and linear attention, with any number of threads. */
#include "test.h"

#include <stdlib.h>

#include "attn/linear.h"
#include "testing/problem/linear_problem.h"
#include "testing/problem/linear_tensors.h"
#include "testing/problem/problem.h"

static const char *const problems[] = {
    "fwd:hq8:sq300:d64",
    "fwd:b2:hq8:sq300:d64:causal:lse",
    "fwd:b5:hq8:sq300:d64:lens",
    "fwd:b5:hq8:hkv2:sq300:d64:lens=q:causal",
    "fwd:b5:hq8:sq300:d64:packed:causal",
    "fwd:bf16:b5:hq4:sq900:d128:packed",
    "fwd:b64:hq2:sq14:d32:lens=kv",
    "fwd:b3:hq2:sq400:d48:weights:softcap=2",
    "fwd:b3:hq2:sq400:d48:rel=shaw/9:alibi",
    "fwd:b2:hq4:sq200:d32:score=additive",
    "decode:hq8:hkv2:sq1:skv4096:d64",
    "decode:b4:hq8:hkv2:sq3:skv4096:d64:lens=kv",
    "bwd:b5:hq8:sq300:d64:lens",
    "bwd:b5:hq8:sq300:d64:packed:causal",
    "bwd:bf16:hq3:sq3000:d64",
    "bwd:bf16:b2:hq5:hkv1:sq700:d64:causal",
    "bwd:hq8:sq300:d64:bias:dbias",
    "jvp:b5:hq8:sq300:d64:lens=q",
    "bwd2:b2:hq3:sq300:d64:causal",
    "bwd2:bf16:b5:hq3:sq300:d64:packed",
    "linear:b2:hq8:sq300:d64:causal",
    "linear:bf16:hq2:sq2000:d128",
    "linear:b3:hq6:hkv2:sq500:d48:causal:rule=delta",
    "linear:b3:hq6:sq500:d160:causal:decay=channel",
    "linear-bwd:b2:hq8:sq300:d64:causal",
    "linear-bwd:hq2:sq700:d64:causal:decay=head",
    "linear-bwd:b3:hq6:sq500:d48:causal:rule=delta",
};

/* A problem of the table, ready to be planned. */
static struct {
    const char *text;
    int linear;
    attn_problem problem;
    attn_tensors tensors;
    attn_linear_problem linear_problem;
    attn_linear_tensors linear_tensors;
} now;

static void read_problem(const char *text)
{
    problem_spec spec;
    attn_error error;
    now.text = text;
    if (problem_parse(text, &spec, &error) != ATTN_OK) fail_msg("%s: %s", text, error.message);
    now.linear = spec.op >= SPEC_LINEAR;
    const attn_status status = now.linear ? linear_problem_build(&spec, &now.linear_problem, &now.linear_tensors, &error)
                                          : problem_build(&spec, &now.problem, &now.tensors, &error);
    if (status != ATTN_OK) fail_msg("%s: %s", text, error.message);
    if (now.linear) now.linear_tensors = linear_of_op(&now.linear_problem, &now.linear_tensors);
}

/* Plans; *size: of the workspace. */
static attn_status plan(int threads, size_t limit, size_t *size, attn_error *error)
{
    const attn_options options = {.struct_size = sizeof options, .threads = threads, .workspace_limit = limit};
    attn_status status;
    if (now.linear) {
        attn_linear_plan *made;
        status = attn_linear_plan_create(&made, &now.linear_problem, &now.linear_tensors, &options, error);
        *size = attn_linear_plan_workspace_size(made);
        attn_linear_plan_destroy(made);
    } else {
        attn_plan *made;
        status = attn_plan_create(&made, &now.problem, &now.tensors, &options, error);
        *size = attn_plan_workspace_size(made);
        attn_plan_destroy(made);
    }
    return status;
}

/* The number in the message of a plan with this limit, which must be rejected. */
static size_t needed(int threads, size_t limit)
{
    attn_error error;
    char expected[200];
    size_t size, need = 0;
    if (plan(threads, limit, &size, &error) == ATTN_OK)
        fail_msg("%s, %d threads: a limit of %zu bytes is not rejected (%zu used)", now.text, threads, limit, size);
    const char *number = strstr(error.message, "needs ");
    if (number) need = (size_t)strtoull(number + strlen("needs "), NULL, 10);
    (void)snprintf(expected, sizeof expected, "options.workspace_limit is %zu bytes; this problem needs %zu", limit, need);
    assert_string_equal(error.message, expected);
    return need;
}

static void test_least(void **state)
{
    static const int threads[] = {1, 2, 3, 8, 12, 40};
    (void)state;
    for (size_t p = 0; p < sizeof problems / sizeof *problems; p++)
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            attn_error error;
            size_t size, most;
            read_problem(problems[p]);
            const size_t least = needed(threads[t], 1);
            if (plan(threads[t], least, &size, &error) != ATTN_OK)
                fail_msg("%s, %d threads: %s", now.text, threads[t], error.message);
            assert_int_equal(size, least);
            assert_int_equal(needed(threads[t], least - 1), least);
            assert_int_equal(plan(threads[t], 0, &most, &error), ATTN_OK);
            assert_true(least <= most);
            for (int part = 1; part < 5; part++) {
                const size_t limit = least + (most - least) * (size_t)part / 4;
                assert_int_equal(plan(threads[t], limit, &size, &error), ATTN_OK);
                assert_true(size <= limit);
            }
            assert_int_equal(size, most); /* of a limit that the fastest layout keeps to */
        }
}

/* Linear attention does with one thread if the limit asks for it. */
static void test_fewer_threads(void **state)
{
    attn_error error;
    size_t one, eight, size;
    (void)state;
    read_problem("linear:b2:hq8:sq300:d64:causal");
    assert_int_equal(plan(1, 0, &one, &error), ATTN_OK);
    assert_int_equal(plan(8, 0, &eight, &error), ATTN_OK);
    assert_true(eight > 4 * one);
    assert_int_equal(plan(8, one, &size, &error), ATTN_OK);
    assert_int_equal(size, one);
    assert_int_equal(plan(8, 3 * one, &size, &error), ATTN_OK);
    assert_true(size > one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_least), cmocka_unit_test(test_fewer_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
