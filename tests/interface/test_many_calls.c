/* SPDX-License-Identifier: MIT
 *
 * test_many_calls.c - many threads execute one plan at once with different calls: dropout seeds, origins, visitor contexts, memory.
 * Each gets the results of a separate call.  Worth running under TSan. */
#include "test.h"

#include "attn/attn.h"
#include "on_threads.h"

enum { CALLERS = 6, ROUNDS = 5, H = 2, S = 40, D = 16, ALL = H * S * D };

typedef struct caller {
    const attn_plan *plan;
    attn_call call;
    attn_origin origin;
    attn_tensors tensors;
    float q[ALL], k[ALL], v[ALL], o[ALL], lse[H * S], rows[H * S * S];
    unsigned char keep[H * S * S];
    pthread_t thread;
} caller;

static void visit(void *context, const attn_rows *rows)
{
    caller *c = context;
    for (int64_t i = 0; i < rows->count; i++)
        memcpy(c->rows + (rows->head * S + rows->first + i) * S, (const float *)rows->values + i * rows->stride,
               (size_t)rows->len_kv * sizeof(float));
}

static void caller_make(caller *c, int n)
{
    memset(c, 0, sizeof *c);
    for (int i = 0; i < ALL; i++) {
        c->q[i] = (float)((i * 7 + n) % 13) / 4 - 1;
        c->k[i] = (float)((i * 5 + 3 * n) % 11) / 4 - 1;
        c->v[i] = (float)((i * 3 + n) % 17) / 4;
    }
    c->origin = (attn_origin){.batch = n % 2, .head = 2 * n, .heads = 16, .q = 10 * n, .kv = 9 * n};
    c->call = (attn_call){.struct_size = sizeof c->call,
                          .dropout_seed = 1000u * (unsigned)n,
                          .dropout_offset = (uint32_t)n,
                          .origin = &c->origin,
                          .visit_rows = visit,
                          .visit_context = c};
    c->tensors = (attn_tensors){.struct_size = sizeof c->tensors, .call = &c->call, .q = attn_in(c->q), .k = attn_in(c->k)};
    c->tensors.v = attn_in(c->v);
    c->tensors.o = attn_out(c->o), c->tensors.lse = attn_out(c->lse), c->tensors.dropout_keep = attn_out(c->keep);
}

static void *execute_often(void *context)
{
    caller *c = context;
    const size_t size = attn_plan_workspace_size(c->plan);
    void *workspace = malloc(size + 1);
    MUST(workspace);
    for (int round = 0; round < ROUNDS; round++) {
        memset(c->o, 0xff, sizeof c->o), memset(c->rows, 0xff, sizeof c->rows), memset(c->keep, 0xff, sizeof c->keep);
        MUST(attn_execute(c->plan, &c->tensors, workspace, size, NULL) == ATTN_OK);
    }
    free(workspace);
    return NULL;
}

static void test_calls(void **state)
{
    static caller many[CALLERS], single;
    attn_problem problem = {.struct_size = sizeof problem, .shape = {1, H, H, S, S, D, D}, .mask.causal = 1};
    attn_options options = {.struct_size = sizeof options, .threads = 2, .parallel_for = on_threads};
    attn_plan *plan;
    attn_error error;
    (void)state;
    problem.dropout.probability = 0.4;
    problem.outputs.rows_stage = ATTN_STAGE_WEIGHTS;
    for (int n = 0; n < CALLERS; n++) caller_make(&many[n], n);
    if (attn_plan_create(&plan, &problem, &many[0].tensors, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
    for (int n = 0; n < CALLERS; n++) {
        many[n].plan = plan;
        assert_int_equal(pthread_create(&many[n].thread, NULL, execute_often, &many[n]), 0);
    }
    for (int n = 0; n < CALLERS; n++) assert_int_equal(pthread_join(many[n].thread, NULL), 0);
    attn_plan_destroy(plan);
    for (int n = 0; n < CALLERS; n++) {
        caller_make(&single, n);
        memset(single.rows, 0xff, sizeof single.rows);
        if (attn_compute(&problem, &single.tensors, &error) != ATTN_OK) fail_msg("%s", error.message);
        assert_memory_equal(single.o, many[n].o, sizeof single.o);
        assert_memory_equal(single.lse, many[n].lse, sizeof single.lse);
        assert_memory_equal(single.keep, many[n].keep, sizeof single.keep);
        assert_memory_equal(single.rows, many[n].rows, sizeof single.rows);
        assert_true(n == 0 || memcmp(many[0].keep, many[n].keep, sizeof single.keep) != 0); /* the calls were different */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_calls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
