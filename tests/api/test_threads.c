/* SPDX-License-Identifier: MIT
 *
 * test_threads.c - one plan executed by many threads at once, each with its own workspace; the caller's parallel_for; plans created
 * and destroyed concurrently.  Worth running under TSan.
 */
#include "test.h"

#include "same_bits.h"

enum { ROUNDS = 4, CALLERS = 16 };

/* An attn_parallel_for that runs the iterations serially, from the last to the first. */
static void backwards(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    (void)context;
    while (n-- > 0) body(body_context, n);
}

/* ---- the tests ---- */

static void check_parallel_for(attn_op op)
{
    attn_parallel_for *const loops[] = {NULL, on_threads, backwards};
    tensors *in = tensors_create(), *expected = expected_create(in);
    for (size_t l = 0; l < sizeof loops / sizeof *loops; l++)
        for (int threads = 1; threads <= 8; threads++) {
            atomic_int calls = 0;
            attn_options options = {.struct_size = sizeof options, .threads = threads, .parallel_for = loops[l]};
            tensors *out = tensors_create();
            options.parallel_context = &calls;
            compute(op, &options, in, out);
            assert_true(same(op, out, expected));
            if (loops[l] == on_threads) assert_int_equal(atomic_load(&calls) > 0, threads > 1);
            if (op == ATTN_FORWARD) assert_true(atomic_load(&calls) <= 1); /* one parallel region per call */
            free(out);
        }
    free(expected);
    free(in);
}

static void test_parallel_for(void **state)
{
    (void)state;
    check_parallel_for(ATTN_FORWARD);
    check_parallel_for(ATTN_BACKWARD);
}

/* A plan reports its number of threads: at most the number requested, at least 2 if more than one. */
static void test_described(void **state)
{
    attn_problem problem = problem_of(ATTN_FORWARD);
    tensors *t = tensors_create();
    const attn_tensors slots = slots_of(ATTN_FORWARD, t, t);
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        attn_options options = {.struct_size = sizeof options, .threads = threads};
        attn_plan_description description = {.struct_size = sizeof description};
        attn_plan *plan;
        assert_int_equal(attn_plan_create(&plan, &problem, &slots, &options, NULL), ATTN_OK);
        assert_int_equal(attn_plan_describe(plan, &description, NULL), ATTN_OK);
        assert_in_range(description.threads, threads > 1 ? 2 : 1, threads);
        attn_plan_destroy(plan);
    }
    free(t);
}

typedef struct shared {
    attn_op op;
    const attn_plan *plan; /* NULL: create one each time */
    tensors *in, *out;
    pthread_t thread;
} shared;

static void *execute_often(void *context)
{
    shared *s = context;
    for (int round = 0; round < ROUNDS; round++) {
        memset(s->out, round, sizeof *s->out);
        execute(s->op, s->plan, s->in, s->out);
    }
    return NULL;
}

static void *plan_often(void *context)
{
    shared *s = context;
    for (int round = 0; round < ROUNDS; round++) {
        attn_cpu_description cpu = {.struct_size = sizeof cpu};
        MUST(attn_cpu_describe(&cpu, NULL) == ATTN_OK);
        compute(s->op, &one_thread, s->in, s->out);
    }
    return NULL;
}

static void run_on_all(attn_op op, const attn_plan *plan, void *(*run)(void *context))
{
    shared s[CALLERS];
    tensors *in = tensors_create();
    if (op == ATTN_BACKWARD) free(expected_create(in));
    for (int i = 0; i < CALLERS; i++) {
        s[i] = (shared){.op = op, .plan = plan, .in = in, .out = tensors_create()};
        assert_int_equal(pthread_create(&s[i].thread, NULL, run, &s[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_join(s[i].thread, NULL), 0);
    tensors *expected = expected_create(in);
    for (int i = 0; i < CALLERS; i++) {
        assert_true(same(op, s[i].out, expected));
        free(s[i].out);
    }
    free(expected);
    free(in);
}

/* Many threads may be the first to detect the CPU, which the library does once; so this test runs first. */
static void test_planning(void **state)
{
    (void)state;
    run_on_all(ATTN_FORWARD, NULL, plan_often);
}

/* One plan with several threads of its own, executed by many callers. */
static void check_shared_plan(attn_parallel_for *parallel_for)
{
    attn_options options = {.struct_size = sizeof options, .threads = 3, .parallel_for = parallel_for};
    for (int op = ATTN_FORWARD; op <= ATTN_BACKWARD; op++) {
        attn_problem problem = problem_of((attn_op)op);
        tensors *t = tensors_create();
        const attn_tensors slots = slots_of((attn_op)op, t, t);
        attn_plan *plan;
        assert_int_equal(attn_plan_create(&plan, &problem, &slots, &options, NULL), ATTN_OK);
        free(t);
        run_on_all((attn_op)op, plan, execute_often);
        attn_plan_destroy(plan);
    }
}

static void test_shared_plan(void **state)
{
    (void)state;
    check_shared_plan(NULL);
    check_shared_plan(on_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planning),
        cmocka_unit_test(test_parallel_for),
        cmocka_unit_test(test_described),
        cmocka_unit_test(test_shared_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
