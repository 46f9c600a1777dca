/* SPDX-License-Identifier: MIT
 * test_team.c - attn_execute_worker: threads of the caller enter an execution together; the bits and errors of attn_execute. */
#include "test.h"

#include <pthread.h>

#include "attn/team.h"
#include "testing/random/random.h"

enum { B = 3, HQ = 8, HKV = 2, S = 300, D = 16, MOST = 6, ELEMENTS = B * HQ * S * D };

static float q[ELEMENTS], k[ELEMENTS], v[ELEMENTS], alone[ELEMENTS];

/* A team and what its workers are given. */
typedef struct crew {
    attn_team team;
    pthread_barrier_t barrier;
    const attn_plan *plan;
    attn_tensors tensors;
    float *o;
    void *workspace;
    size_t size;
    attn_status status[MOST];
    attn_error error[MOST];
} crew;

typedef struct member {
    crew *of;
    int worker;
} member;

static _Thread_local int met; /* barriers that this thread has passed */

static void wait_for_all(void *context)
{
    met++;
    (void)pthread_barrier_wait(context);
}

static void *enter(void *context)
{
    const member *m = context;
    crew *c = m->of;
    for (int again = 0; again < 6; again++) { /* each time as another worker */
        const int worker = (m->worker + again) % c->team.workers;
        c->status[worker] =
            attn_execute_worker(c->plan, worker, worker ? NULL : &c->tensors, c->workspace, c->size, &c->team, &c->error[worker]);
    }
    return NULL;
}

static void begin(crew *c, pthread_t *threads, member *members, int workers)
{
    c->team = (attn_team){.struct_size = sizeof c->team, .workers = workers, .barrier = wait_for_all, .context = &c->barrier};
    assert_int_equal(pthread_barrier_init(&c->barrier, NULL, (unsigned)workers), 0);
    for (int i = 0; i < workers; i++) {
        members[i] = (member){c, i};
        assert_int_equal(pthread_create(&threads[i], NULL, enter, &members[i]), 0);
    }
}

static void end(crew *c, const pthread_t *threads, int workers)
{
    for (int i = 0; i < workers; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    (void)pthread_barrier_destroy(&c->barrier);
}

static attn_problem problem_of(int64_t len_q)
{
    return (attn_problem){.struct_size = sizeof(attn_problem), .shape = {B, HQ, HKV, len_q, S, D, D}, .mask.causal = 1};
}

static attn_tensors tensors_of(float *o)
{
    return (attn_tensors){.struct_size = sizeof(attn_tensors), .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
}

/* Decode, rows, tiles and whole heads. */
static const int64_t lengths[] = {1, 9, 70, S};

static void test_bits(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
        for (int planned = 1; planned <= 4; planned += 3)
            for (int workers = 1; workers <= MOST; workers += workers < 2 ? 1 : 2) {
                const attn_problem p = problem_of(lengths[n]);
                const attn_options options = {.struct_size = sizeof options, .threads = planned};
                const size_t bytes = (size_t)(B * HQ * lengths[n] * D) * sizeof *q;
                crew two[2];
                pthread_t threads[2][MOST];
                member members[2][MOST];
                attn_plan *plan;
                attn_error error;
                attn_tensors t = tensors_of(alone);
                assert_int_equal(attn_compute(&p, &t, &error), ATTN_OK);
                assert_int_equal(attn_plan_create(&plan, &p, &t, &options, &error), ATTN_OK);
                for (int c = 0; c < 2; c++) { /* two teams at once */
                    two[c] = (crew){.plan = plan, .size = attn_plan_workspace_size(plan)};
                    assert_non_null(two[c].o = malloc(bytes));
                    assert_non_null(two[c].workspace = malloc(two[c].size + 1));
                    memset(two[c].o, 0xff, bytes);
                    two[c].tensors = tensors_of(two[c].o);
                    begin(&two[c], threads[c], members[c], workers);
                }
                for (int c = 0; c < 2; c++) {
                    end(&two[c], threads[c], workers);
                    for (int i = 0; i < workers; i++) assert_int_equal(two[c].status[i], ATTN_OK);
                    assert_memory_equal(two[c].o, alone, bytes);
                    free(two[c].o), free(two[c].workspace);
                }
                attn_plan_destroy(plan);
            }
}

/* An error is that of worker 0, on all of them. */
static void test_errors(void **state)
{
    const attn_problem p = problem_of(9);
    static float o[B * HQ * 9 * D];
    crew c = {.tensors = tensors_of(o)};
    pthread_t threads[MOST];
    member members[MOST];
    attn_plan *plan;
    attn_error error;
    (void)state;
    assert_int_equal(attn_plan_create(&plan, &p, &c.tensors, NULL, &error), ATTN_OK);
    c.plan = plan;
    c.tensors.k.data = ATTN_LATER;
    begin(&c, threads, members, 3);
    end(&c, threads, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(c.status[i], ATTN_ERR_ARGUMENT);
        assert_string_equal(c.error[i].message, "k is ATTN_LATER; an execution needs its pointer");
        assert_int_equal(c.error[i].tensor, c.error[0].tensor);
    }
    attn_plan_destroy(plan);
}

/* What a callback executes, and that it passed no barrier: the other workers are in the middle of theirs. */
typedef struct nested {
    const attn_plan *plan;
    _Atomic int calls, barriers, failures;
} nested;

static void execute_nested(void *context, const attn_rows *rows)
{
    nested *n = context;
    const int before = met;
    const size_t size = attn_plan_workspace_size(n->plan);
    float *o = malloc(B * HQ * 9 * D * sizeof *o);
    void *workspace = malloc(size + 1);
    const attn_tensors t = tensors_of(o);
    (void)rows;
    n->failures += !o || !workspace || attn_execute(n->plan, &t, workspace, size, NULL) != ATTN_OK;
    n->calls++;
    n->barriers += met - before;
    free(o), free(workspace);
}

static void test_nested(void **state)
{
    const attn_options options = {.struct_size = sizeof options, .threads = 2};
    const attn_problem p = problem_of(S), inner = problem_of(9);
    static float o[ELEMENTS], inner_o[B * HQ * 9 * D];
    nested n = {0};
    const attn_call call = {.struct_size = sizeof call, .visit_rows = execute_nested, .visit_context = &n};
    const attn_tensors inner_tensors = tensors_of(inner_o);
    crew c = {.tensors = tensors_of(o)};
    pthread_t threads[MOST];
    member members[MOST];
    attn_plan *plans[2];
    attn_error error;
    (void)state;
    c.tensors.call = &call;
    const attn_tensors plain = tensors_of(alone);
    assert_int_equal(attn_compute(&p, &plain, &error), ATTN_OK);
    assert_int_equal(attn_plan_create(&plans[0], &p, &c.tensors, &options, &error), ATTN_OK);
    assert_int_equal(attn_plan_create(&plans[1], &inner, &inner_tensors, &options, &error), ATTN_OK);
    c.plan = plans[0], n.plan = plans[1], c.size = attn_plan_workspace_size(plans[0]);
    assert_non_null(c.workspace = malloc(c.size + 1));
    begin(&c, threads, members, 2);
    end(&c, threads, 2);
    assert_true(n.calls > 0);
    assert_int_equal(n.failures, 0);
    assert_int_equal(n.barriers, 0);
    assert_memory_equal(o, alone, sizeof o);
    free(c.workspace);
    attn_plan_destroy(plans[0]), attn_plan_destroy(plans[1]);
}

static void test_rejected(void **state)
{
    attn_team team = {.struct_size = sizeof team, .workers = 2};
    attn_error error;
    (void)state;
    assert_int_equal(attn_execute_worker(NULL, 0, NULL, NULL, 0, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "team is NULL");
    assert_int_equal(attn_execute_worker(NULL, 0, NULL, NULL, 0, &team, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "team.barrier is NULL; 2 workers need one");
    team.barrier = wait_for_all;
    assert_int_equal(attn_execute_worker(NULL, 2, NULL, NULL, 0, &team, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "worker is 2; it must be between 0 and team.workers - 1 (1)");
    team.workers = 0;
    assert_int_equal(attn_execute_worker(NULL, 0, NULL, NULL, 0, &team, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "team.workers is 0; it must be between 1 and 1024");
    team = (attn_team){.struct_size = sizeof team, .workers = 1}; /* alone: without a barrier */
    assert_int_equal(attn_execute_worker(NULL, 0, NULL, NULL, 0, &team, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "plan is NULL");
    team.struct_size = 8;
    assert_int_equal(attn_execute_worker(NULL, 0, NULL, NULL, 0, &team, &error), ATTN_ERR_ARGUMENT);
}

int main(void)
{
    random_state random = random_from(1);
    for (int i = 0; i < ELEMENTS; i++)
        q[i] = (float)random_signed(&random), k[i] = (float)random_signed(&random), v[i] = (float)random_signed(&random);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_errors), cmocka_unit_test(test_nested),
                                       cmocka_unit_test(test_rejected)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
