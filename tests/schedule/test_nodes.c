/* SPDX-License-Identifier: MIT
 *
 * test_nodes.c - nodes of memory: items are in the order of nodes, threads take those of their own node first, none is idle while
 * there is work, and the bits are the same.
 */
#define _POSIX_C_SOURCE 200809L /* pthread_barrier_t */
#include "test.h"

#include <pthread.h>

#include "attn/schedule.h"
#include "attn/team.h"
#include "testing/random/random.h"

enum { B = 6, HQ = 2, D = 16, LEN = 512, MOST = 2, NONE = -1 };

static float q[B * HQ * D], k[B * LEN * D], v[B * LEN * D], o[B * HQ * D], expected[B * HQ * D];
static int64_t starts[B + 1], lengths[B];
static uint64_t memory[1 << 13];

/* ---- two threads, of which each has a task before any gets its second ---- */

static pthread_barrier_t both;
static int64_t first_entry[2];
static _Thread_local int64_t worker = -1;
static _Thread_local int has_begun;

typedef struct body_of {
    void (*body)(void *context, int64_t i);
    void *context;
    int64_t i;
} body_of;

static void *enter(void *context)
{
    const body_of *b = context;
    worker = b->i, has_begun = 0;
    b->body(b->context, b->i);
    worker = -1;
    return NULL;
}

static void on_two_threads(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    body_of of[2] = {{body, body_context, 0}, {body, body_context, 1}};
    pthread_t other;
    (void)context;
    assert_int_equal(n, 2);
    assert_int_equal(pthread_create(&other, NULL, enter, &of[1]), 0);
    (void)enter(&of[0]);
    (void)pthread_join(other, NULL);
}

static void note(void *context, const attn_score_tile *tile)
{
    (void)context;
    if (worker < 0 || has_begun) return;
    has_begun = 1;
    first_entry[worker] = tile->batch;
    (void)pthread_barrier_wait(&both);
}

/* ---- a batch ---- */

typedef struct batch {
    attn_problem problem;
    attn_call call;
    attn_tensors tensors;
    attn_plan *plan;
} batch;

static void make(batch *b, int threads, int watched)
{
    random_state r = random_from(3);
    attn_error error;
    for (size_t i = 0; i < sizeof q / sizeof *q; i++) q[i] = (float)random_signed(&r);
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) k[i] = (float)random_signed(&r), v[i] = (float)random_signed(&r);
    for (int n = 0; n < B; n++) starts[n + 1] = n + 1, lengths[n] = LEN;
    const attn_options options = {
        .struct_size = sizeof options, .threads = threads, .parallel_for = watched ? on_two_threads : NULL};
    *b = (batch){.problem = {.struct_size = sizeof b->problem, .shape = {B, HQ, 1, 1, LEN, D, D}},
                 .call = {.struct_size = sizeof b->call, .modify_scores = watched ? note : NULL},
                 .tensors = {.struct_size = sizeof b->tensors,
                             .call = &b->call,
                             .q = attn_in(q),
                             .k = attn_in(k),
                             .v = attn_in(v),
                             .o = attn_out(o),
                             .cu_seqlens_q = attn_in(starts),
                             .lengths_kv = attn_in(lengths)}};
    if (attn_plan_create(&b->plan, &b->problem, &b->tensors, &options, &error) != ATTN_OK) fail_msg("%s", error.message);
}

static const attn_schedule *schedule_of(batch *b, const attn_schedule_options *options)
{
    const attn_schedule *made;
    attn_error error;
    if (attn_schedule_make(&made, b->plan, &b->tensors, memory, sizeof memory, options, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    return made;
}

typedef struct member {
    const batch *of;
    void *workspace;
    size_t size;
    attn_team *team;
    int worker;
} member;

static void *enter_as_member(void *context)
{
    const member *m = context;
    attn_error error;
    worker = m->worker, has_begun = 0;
    if (attn_execute_worker(m->of->plan, m->worker, &m->of->tensors, m->workspace, m->size, m->team, &error) != ATTN_OK)
        fail_msg("%s", error.message);
    worker = -1;
    return NULL;
}

static void meet(void *context) { (void)pthread_barrier_wait(context); }

/* With parallel_for or the library's threads, or by a team of two. */
static void run(batch *b, const attn_schedule *schedule, int by_team)
{
    const size_t size = attn_schedule_workspace_size(schedule);
    void *workspace = malloc(size + 1);
    attn_error error;
    b->call.schedule = schedule;
    memset(o, 0xff, sizeof o);
    assert_non_null(workspace);
    if (by_team) {
        pthread_barrier_t barrier;
        pthread_t other;
        attn_team team = {.struct_size = sizeof team, .workers = 2, .barrier = meet, .context = &barrier};
        member members[2] = {{b, workspace, size, &team, 0}, {b, workspace, size, &team, 1}};
        assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
        assert_int_equal(pthread_create(&other, NULL, enter_as_member, &members[1]), 0);
        (void)enter_as_member(&members[0]);
        (void)pthread_join(other, NULL);
        (void)pthread_barrier_destroy(&barrier);
    } else if (attn_execute(b->plan, &b->tensors, workspace, size, &error) != ATTN_OK) fail_msg("%s", error.message);
    free(workspace);
}

/* ---- tests ---- */

/* Items are in the order of nodes, those of none last, and of a node the longest first. */
static void test_order(void **state)
{
    static const int32_t nodes[B] = {2, NONE, 0, 2, NONE, 0};
    static const int64_t long_one = 3, entries[B] = {2, 5, 3, 0, 1, 4};
    const attn_schedule_options options = {.struct_size = sizeof options, .nodes = 3, .entry_nodes = nodes};
    attn_schedule_description d = {.struct_size = sizeof d};
    batch b;
    (void)state;
    make(&b, 1, 0);
    for (int n = 0; n < B; n++) lengths[n] = n == long_one ? 200 : 100;
    const attn_schedule *schedule = schedule_of(&b, &options);
    assert_int_equal(attn_schedule_describe(schedule, 1, &d, NULL), ATTN_OK);
    assert_true(d.items == B && d.nodes == 3);
    for (int64_t n = 0; n < d.items; n++) {
        attn_scheduled_item item = {.struct_size = sizeof item};
        assert_int_equal(attn_schedule_item(schedule, n, &item, NULL), ATTN_OK);
        assert_int_equal(item.entry, entries[n]);
        assert_int_equal(item.node, nodes[entries[n]]);
        assert_true(item.sequences == 1 && item.tasks == d.tasks / B && item.work == HQ * (double)lengths[entries[n]]);
    }
    attn_plan_destroy(b.plan);
}

/* What stays at home if four items are on node 0 and two on node 1. */
static void test_described(void **state)
{
    static const struct {
        int32_t entries[B], workers[MOST];
        int given; /* workers whose node is given */
        double local, balance;
    } rows[] = {
        {{0, 0, 0, 1, 1, 1}, {0, 1}, 2, 1, 1},          {{0, 0, 0, 0, 1, 1}, {0, 1}, 2, 5 / 6.0, 1},
        {{0, 0, 0, 0, 1, 1}, {0, 0}, 2, 4 / 6.0, 1},    {{0, 0, 0, 0, 1, 1}, {1, 1}, 2, 2 / 6.0, 1},
        {{0, 0, 0, 0, 1, 1}, {0}, 1, 3 / 6.0, 1},       {{0, 0, 0, NONE, 1, NONE}, {0, 1}, 2, 1, 1},
        {{0, 0, 0, 0, 1, 1}, {0, 0}, 0, 5 / 6.0, 1},    {{NONE, NONE, NONE, NONE, NONE, NONE}, {0, 1}, 2, 1, 1},
        {{1, 1, 1, 1, 1, 1}, {NONE, 1}, 2, 3 / 6.0, 1},
    };
    (void)state;
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        const attn_schedule_options options = {.struct_size = sizeof options,
                                               .nodes = 2,
                                               .entry_nodes = rows[n].entries,
                                               .workers = rows[n].given,
                                               .worker_nodes = rows[n].given ? rows[n].workers : NULL};
        attn_schedule_description d = {.struct_size = sizeof d};
        batch b;
        make(&b, 1, 0);
        assert_int_equal(attn_schedule_describe(schedule_of(&b, &options), MOST, &d, NULL), ATTN_OK);
        if (fabs(d.local - rows[n].local) > 1e-12 || fabs(d.balance - rows[n].balance) > 1e-12)
            fail_msg("row %d: local %g, balance %g", (int)n, d.local, d.balance);
        attn_plan_destroy(b.plan);
    }
}

/* The first item of each of two threads, of a parallel_for or a team, is one of its node, whatever its place in the batch. */
static void test_taken(void **state)
{
    static const int32_t entries[B] = {1, 1, 0, 1, 0, 0};
    batch b;
    (void)state;
    assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
    for (int way = 0; way < 4; way++) {
        const int32_t workers[2] = {way % 2, !(way % 2)};
        const attn_schedule_options options = {
            .struct_size = sizeof options, .nodes = 2, .entry_nodes = entries, .workers = 2, .worker_nodes = workers};
        make(&b, 2, 1);
        run(&b, schedule_of(&b, &options), way >= 2);
        for (int i = 0; i < 2; i++)
            if (entries[first_entry[i]] != workers[i])
                fail_msg("worker %d of node %d began with entry %d", i, (int)workers[i], (int)first_entry[i]);
        attn_plan_destroy(b.plan);
    }
    (void)pthread_barrier_destroy(&both);
}

/* With the library's threads, which ask the system for their node: all is computed, and the same bits. */
static void test_asked(void **state)
{
    static const int32_t entries[2][B] = {{0, 1, 1, 1, 0, NONE}, {1, 1, 1, 1, 1, 1}};
    batch b;
    (void)state;
    for (int way = 0; way < 2; way++)
        for (int threads = 1; threads < 4; threads++) {
            const attn_schedule_options options = {.struct_size = sizeof options, .nodes = 2, .entry_nodes = entries[way]};
            make(&b, threads, 0);
            run(&b, schedule_of(&b, NULL), 0);
            memcpy(expected, o, sizeof o);
            run(&b, schedule_of(&b, &options), 0);
            assert_memory_equal(o, expected, sizeof o);
            attn_plan_destroy(b.plan);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_order), cmocka_unit_test(test_described), cmocka_unit_test(test_taken),
                                       cmocka_unit_test(test_asked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
