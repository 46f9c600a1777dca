/* SPDX-License-Identifier: MIT
 *
 * test_threads.c - one plan executed by many threads at once, each with its own workspace; the caller's parallel_for; and plans
 * made and destroyed at once.  Worth running under TSan.
 */
#include "test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "attn/attn.h"

enum { THREADS = 6, ROUNDS = 4, HEADS = 4, LEN = 150, DIM = 24, COUNT = HEADS * LEN * DIM };

typedef struct tensors {
    float q[COUNT], k[COUNT], v[COUNT], o[COUNT], lse[HEADS * LEN];
} tensors;

/* For threads: cmocka's assertions belong to the thread that runs the test. */
#define MUST(condition)                                                                                                            \
    do {                                                                                                                           \
        if (condition) break;                                                                                                      \
        (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                      \
        abort();                                                                                                                   \
    } while (0)

static float noise(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 23) - 1;
}

static tensors *tensors_create(void)
{
    tensors *t = calloc(1, sizeof *t);
    uint32_t state = 1;
    MUST(t);
    for (int i = 0; i < COUNT; i++) t->q[i] = noise(&state), t->k[i] = noise(&state), t->v[i] = noise(&state);
    return t;
}

static attn_problem problem_of(void)
{
    attn_problem p = {.struct_size = sizeof p, .shape = {1, HEADS, HEADS, LEN, LEN, DIM, DIM}};
    p.mask.causal = 1;
    p.want.lse = 1;
    return p;
}

static attn_args args_of(tensors *in, tensors *out)
{
    attn_args a = {.struct_size = sizeof a, .q = in->q, .k = in->k, .v = in->v, .o = out->o, .lse = out->lse};
    return a;
}

static void execute(const attn_plan *plan, tensors *in, tensors *out)
{
    attn_args args = args_of(in, out);
    size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    MUST(workspace);
    MUST(attn_execute(plan, &args, workspace, size, NULL) == ATTN_OK);
    free(workspace);
}

/* ---- a parallel_for on plain threads, in an order of its own ---- */

typedef struct loop {
    atomic_llong left;
    void (*body)(void *body_context, int64_t i);
    void *body_context;
} loop;

static void *loop_run(void *context)
{
    loop *l = context;
    for (;;) {
        int64_t i = atomic_fetch_sub(&l->left, 1) - 1;
        if (i < 0) return NULL;
        l->body(l->body_context, i);
    }
}

static void on_threads(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    pthread_t threads[THREADS];
    loop l = {.body = body, .body_context = body_context};
    atomic_init(&l.left, n);
    if (context) atomic_fetch_add((atomic_int *)context, 1);
    for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, loop_run, &l) == 0);
    for (int i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
}

static void backwards(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    (void)context;
    while (n-- > 0) body(body_context, n);
}

/* ---- the tests ---- */

/* What one thread computes. */
static tensors *expected_create(tensors *in)
{
    attn_options options = {.struct_size = sizeof options, .threads = 1};
    attn_problem problem = problem_of();
    attn_plan *plan;
    tensors *out = tensors_create();
    assert_int_equal(attn_plan_create(&plan, &problem, &options, NULL), ATTN_OK);
    execute(plan, in, out);
    attn_plan_destroy(plan);
    return out;
}

static int same(const tensors *a, const tensors *b)
{
    return memcmp(a->o, b->o, sizeof a->o) == 0 && memcmp(a->lse, b->lse, sizeof a->lse) == 0;
}

static void test_parallel_for(void **state)
{
    attn_parallel_for *const loops[] = {NULL, on_threads, backwards};
    tensors *in = tensors_create(), *expected = expected_create(in);
    (void)state;
    for (size_t l = 0; l < sizeof loops / sizeof *loops; l++)
        for (int threads = 1; threads <= 8; threads++) {
            atomic_int calls = 0;
            attn_options options = {.struct_size = sizeof options, .threads = threads, .parallel_for = loops[l]};
            attn_plan_description description = {.struct_size = sizeof description};
            attn_problem problem = problem_of();
            tensors *out = tensors_create();
            attn_plan *plan;
            options.parallel_context = &calls;
            assert_int_equal(attn_plan_create(&plan, &problem, &options, NULL), ATTN_OK);
            assert_int_equal(attn_plan_describe(plan, &description, NULL), ATTN_OK);
            assert_in_range(description.threads, threads > 1 ? 2 : 1, threads);
            execute(plan, in, out);
            assert_true(same(out, expected));
            if (loops[l] == on_threads) assert_int_equal(atomic_load(&calls), threads > 1);
            attn_plan_destroy(plan);
            free(out);
        }
    free(expected);
    free(in);
}

typedef struct shared {
    const attn_plan *plan; /* NULL: make one each time */
    tensors *in, *out;
    pthread_t thread;
} shared;

static void *execute_often(void *context)
{
    shared *s = context;
    for (int round = 0; round < ROUNDS; round++) {
        memset(s->out->o, round, sizeof s->out->o);
        execute(s->plan, s->in, s->out);
    }
    return NULL;
}

static void *plan_often(void *context)
{
    shared *s = context;
    for (int round = 0; round < ROUNDS; round++) {
        attn_cpu_description cpu = {.struct_size = sizeof cpu};
        attn_problem problem = problem_of();
        attn_options options = {.struct_size = sizeof options, .threads = 1};
        attn_plan *plan;
        MUST(attn_cpu_describe(&cpu, NULL) == ATTN_OK);
        MUST(attn_plan_create(&plan, &problem, &options, NULL) == ATTN_OK);
        execute(plan, s->in, s->out);
        attn_plan_destroy(plan);
    }
    return NULL;
}

static void run_on_all(const attn_plan *plan, void *(*run)(void *context))
{
    shared s[THREADS];
    tensors *in = tensors_create();
    for (int i = 0; i < THREADS; i++) {
        s[i] = (shared){.plan = plan, .in = in, .out = tensors_create()};
        assert_int_equal(pthread_create(&s[i].thread, NULL, run, &s[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(s[i].thread, NULL), 0);
    tensors *expected = expected_create(in);
    for (int i = 0; i < THREADS; i++) {
        assert_true(same(s[i].out, expected));
        free(s[i].out);
    }
    free(expected);
    free(in);
}

/* Whatever the library finds out once (the CPU), many threads may find out at once; so this test comes first. */
static void test_planning(void **state)
{
    (void)state;
    run_on_all(NULL, plan_often);
}

/* One plan, which has workers of its own, executed by many. */
static void test_shared_plan(void **state)
{
    attn_options options = {.struct_size = sizeof options, .threads = 3, .parallel_for = on_threads};
    attn_problem problem = problem_of();
    attn_plan *plan;
    (void)state;
    assert_int_equal(attn_plan_create(&plan, &problem, &options, NULL), ATTN_OK);
    run_on_all(plan, execute_often);
    attn_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planning),
        cmocka_unit_test(test_parallel_for),
        cmocka_unit_test(test_shared_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
