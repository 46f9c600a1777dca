/* SPDX-License-Identifier: MIT
 *
 * test_threads.c - one plan executed by many threads at once, each with its own workspace; the caller's parallel_for; and plans
 * made and destroyed at once.  Worth running under TSan.
 */
#include "test.h"

#include "attn/attn.h"
#include "on_threads.h"

enum { ROUNDS = 4, HEADS = 4, LEN = 150, DIM = 24, COUNT = HEADS * LEN * DIM };

typedef struct tensors {
    float q[COUNT], k[COUNT], v[COUNT], o[COUNT], lse[HEADS * LEN], grad_q[COUNT], grad_k[COUNT], grad_v[COUNT];
} tensors;

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

static attn_problem problem_of(attn_op op)
{
    attn_problem p = {.struct_size = sizeof p, .op = op, .shape = {1, HEADS, HEADS, LEN, LEN, DIM, DIM}};
    p.mask.causal = 1;
    p.want.lse = 1;
    return p;
}

/* Forward writes o and lse of `out`; backward reads those of `in`, and takes v for the gradient that arrives. */
static void execute(attn_op op, const attn_plan *plan, tensors *in, tensors *out)
{
    tensors *forward = op == ATTN_FORWARD ? out : in;
    attn_args args = {.struct_size = sizeof args, .q = in->q, .k = in->k, .v = in->v, .o = forward->o, .lse = forward->lse};
    size_t size = attn_plan_workspace_size(plan);
    void *workspace = malloc(size);
    MUST(workspace);
    args.grad_o = in->v, args.grad_q = out->grad_q, args.grad_k = out->grad_k, args.grad_v = out->grad_v;
    MUST(attn_execute(plan, &args, workspace, size, NULL) == ATTN_OK);
    free(workspace);
}

/* The other order. */
static void backwards(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    (void)context;
    while (n-- > 0) body(body_context, n);
}

/* ---- the tests ---- */

static void compute(attn_op op, const attn_options *options, tensors *in, tensors *out)
{
    attn_problem problem = problem_of(op);
    attn_plan *plan;
    MUST(attn_plan_create(&plan, &problem, options, NULL) == ATTN_OK);
    execute(op, plan, in, out);
    attn_plan_destroy(plan);
}

static const attn_options alone = {.struct_size = sizeof alone, .threads = 1};

/* What one thread computes; `in` gets the o and lse that backward reads. */
static tensors *expected_create(tensors *in)
{
    tensors *out = tensors_create();
    compute(ATTN_FORWARD, &alone, in, out);
    memcpy(in->o, out->o, sizeof in->o);
    memcpy(in->lse, out->lse, sizeof in->lse);
    compute(ATTN_BACKWARD, &alone, in, out);
    return out;
}

static int same(attn_op op, const tensors *a, const tensors *b)
{
    if (op == ATTN_FORWARD) return memcmp(a->o, b->o, sizeof a->o) == 0 && memcmp(a->lse, b->lse, sizeof a->lse) == 0;
    return memcmp(a->grad_q, b->grad_q, sizeof a->grad_q) == 0 && memcmp(a->grad_k, b->grad_k, sizeof a->grad_k) == 0 &&
           memcmp(a->grad_v, b->grad_v, sizeof a->grad_v) == 0;
}

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
            if (op == ATTN_FORWARD) assert_true(atomic_load(&calls) <= 1); /* one parallel region a call */
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

/* A plan for some threads says so, and for no more than there is work for. */
static void test_described(void **state)
{
    attn_problem problem = problem_of(ATTN_FORWARD);
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        attn_options options = {.struct_size = sizeof options, .threads = threads};
        attn_plan_description description = {.struct_size = sizeof description};
        attn_plan *plan;
        assert_int_equal(attn_plan_create(&plan, &problem, &options, NULL), ATTN_OK);
        assert_int_equal(attn_plan_describe(plan, &description, NULL), ATTN_OK);
        assert_in_range(description.threads, threads > 1 ? 2 : 1, threads);
        attn_plan_destroy(plan);
    }
}

typedef struct shared {
    attn_op op;
    const attn_plan *plan; /* NULL: make one each time */
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
        compute(s->op, &alone, s->in, s->out);
    }
    return NULL;
}

static void run_on_all(attn_op op, const attn_plan *plan, void *(*run)(void *context))
{
    shared s[ON_THREADS];
    tensors *in = tensors_create();
    if (op == ATTN_BACKWARD) free(expected_create(in));
    for (int i = 0; i < ON_THREADS; i++) {
        s[i] = (shared){.op = op, .plan = plan, .in = in, .out = tensors_create()};
        assert_int_equal(pthread_create(&s[i].thread, NULL, run, &s[i]), 0);
    }
    for (int i = 0; i < ON_THREADS; i++) assert_int_equal(pthread_join(s[i].thread, NULL), 0);
    tensors *expected = expected_create(in);
    for (int i = 0; i < ON_THREADS; i++) {
        assert_true(same(op, s[i].out, expected));
        free(s[i].out);
    }
    free(expected);
    free(in);
}

/* Whatever the library finds out once (the CPU), many threads may find out at once; so this test comes first. */
static void test_planning(void **state)
{
    (void)state;
    run_on_all(ATTN_FORWARD, NULL, plan_often);
}

/* One plan, which has workers of its own, executed by many. */
static void test_shared_plan(void **state)
{
    attn_options options = {.struct_size = sizeof options, .threads = 3, .parallel_for = on_threads};
    (void)state;
    for (int op = ATTN_FORWARD; op <= ATTN_BACKWARD; op++) {
        attn_problem problem = problem_of((attn_op)op);
        attn_plan *plan;
        assert_int_equal(attn_plan_create(&plan, &problem, &options, NULL), ATTN_OK);
        run_on_all((attn_op)op, plan, execute_often);
        attn_plan_destroy(plan);
    }
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
