/* SPDX-License-Identifier: MIT
 *
 * test_linear_waiting.c - how long ranks wait for each other's states, in calls: each rank has a clock that a call moves by 1 and
 * that a message moves to that of its sender (Lamport 1978), so that the last clock is the length of the longest chain. */
#include "test.h"

#include "attn/distributed_linear.h"
#include "testing/ranks/ranks.h"

#include <pthread.h>

enum { RANKS = 4, HEADS = 64, GROUPS = 32, PART = 4, PARTS = 2, LEN = RANKS * PARTS * PART, D = 2, MOST = 4 * GROUPS, TAGS = 16 };

static _Thread_local int64_t now;

/* The linker passes calls that the module makes to this; those without a workspace only check. */
attn_status __wrap_attn_linear_execute(const attn_linear_plan *plan, const attn_linear_tensors *tensors, void *workspace,
                                       size_t size, attn_error *error);
attn_status __real_attn_linear_execute(const attn_linear_plan *plan, const attn_linear_tensors *tensors, void *workspace,
                                       size_t size, attn_error *error);
attn_status __wrap_attn_linear_execute(const attn_linear_plan *plan, const attn_linear_tensors *tensors, void *workspace,
                                       size_t size, attn_error *error)
{
    if (size > 0) now++;
    return __real_attn_linear_execute(plan, tensors, workspace, size, error);
}

/* ---- a transport that carries the time ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t sent[RANKS][RANKS][TAGS][MOST]; /* when, in order */
static int sent_count[RANKS][RANKS][TAGS], received_count[RANKS][RANKS][TAGS];

typedef struct message {
    void *request;
    int from, tag; /* from -1: it is sent */
} message;

static int send_with_time(void *context, int to, int tag, const void *data, size_t bytes, void **request)
{
    const attn_transport *t = context;
    message *m = malloc(sizeof *m);
    *m = (message){NULL, -1, tag};
    *request = m;
    pthread_mutex_lock(&lock);
    sent[t->rank][to][tag][sent_count[t->rank][to][tag]++] = now;
    pthread_mutex_unlock(&lock);
    return t->send(t->context, to, tag, data, bytes, &m->request);
}

static int receive_with_time(void *context, int from, int tag, void *data, size_t bytes, void **request)
{
    const attn_transport *t = context;
    message *m = malloc(sizeof *m);
    *m = (message){NULL, from, tag};
    *request = m;
    return t->receive(t->context, from, tag, data, bytes, &m->request);
}

static int wait_with_time(void *context, int64_t count, void **requests)
{
    const attn_transport *t = context;
    int failed = 0;
    for (int64_t n = 0; n < count; n++) {
        message *m = requests[n];
        if (!m) continue;
        failed |= t->wait(t->context, 1, &m->request);
        pthread_mutex_lock(&lock);
        if (m->from >= 0) {
            const int64_t then = sent[m->from][t->rank][m->tag][received_count[m->from][t->rank][m->tag]++];
            if (then > now) now = then;
        }
        pthread_mutex_unlock(&lock);
        free(m);
    }
    return failed;
}

/* ---- one execution ---- */

typedef struct job {
    attn_op op;
    int causal;
    attn_way way;
    int64_t ends[RANKS], groups[RANKS], calls[RANKS];
    int failed[RANKS];
} job;

static void on_rank(void *context, const attn_transport *transport)
{
    enum { NUMBERS = HEADS * LEN / RANKS * D };
    job *j = context;
    const int me = transport->rank;
    attn_transport inner = *transport, timed = *transport;
    attn_distributed_linear_plan *plan;
    attn_distributed_linear_description d = {.struct_size = sizeof d};
    const attn_linear_problem problem = {.struct_size = sizeof problem,
                                         .op = j->op,
                                         .shape = {1, HEADS, HEADS, LEN, LEN, D, D},
                                         .causal = j->causal,
                                         .denominator = ATTN_DENOMINATOR_NONE};
    const attn_split split = {.struct_size = sizeof split, .part = PART, .way = j->way};
    float *numbers = calloc(8 * NUMBERS, sizeof *numbers);
    attn_linear_tensors t = {
        .struct_size = sizeof t, .q = attn_in(numbers), .k = attn_in(numbers + NUMBERS), .v = attn_in(numbers + 2 * NUMBERS)};
    if (j->op == ATTN_FORWARD) t.o = attn_out(numbers + 3 * NUMBERS);
    else {
        t.grad_o = attn_in(numbers + 3 * NUMBERS), t.grad_q = attn_out(numbers + 4 * NUMBERS);
        t.grad_k = attn_out(numbers + 5 * NUMBERS), t.grad_v = attn_out(numbers + 6 * NUMBERS);
    }
    timed.context = &inner, timed.send = send_with_time, timed.receive = receive_with_time, timed.wait = wait_with_time;
    timed.progress = NULL;
    if (attn_distributed_linear_plan_create(&plan, &problem, &t, &split, &timed, NULL, NULL) != ATTN_OK) j->failed[me] = 1;
    else {
        const size_t size = attn_distributed_linear_workspace_size(plan);
        void *workspace = malloc(size);
        now = 0;
        if (attn_distributed_linear_describe(plan, &d, NULL) != ATTN_OK ||
            attn_distributed_linear_execute(plan, &t, workspace, size, NULL) != ATTN_OK)
            j->failed[me] = 1;
        j->groups[me] = d.groups, j->calls[me] = d.calls;
        attn_distributed_linear_plan_destroy(plan);
        free(workspace);
    }
    j->ends[me] = now;
    free(numbers);
}

/* After the last agreement all clocks are that of the rank that was done last. */
static int64_t length_of(attn_op op, int causal, attn_way way)
{
    job j = {.op = op, .causal = causal, .way = way};
    memset(sent_count, 0, sizeof sent_count), memset(received_count, 0, sizeof received_count);
    ranks_run(RANKS, 0, on_rank, &j);
    for (int r = 0; r < RANKS; r++) {
        assert_false(j.failed[r]);
        assert_int_equal(j.groups[r], way == ATTN_WAY_DIRECT ? 1 : GROUPS);
        if (op == ATTN_FORWARD && causal) assert_int_equal(j.calls[r], (way == ATTN_WAY_DIRECT ? 2 : GROUPS) * PARTS);
        assert_int_equal(j.ends[r], j.ends[0]);
    }
    return j.ends[0];
}

static void test_groups(void **state)
{
    (void)state;
    const int64_t one_walk = (RANKS + GROUPS - 1) * PARTS, in_turn = RANKS * GROUPS * PARTS;
    assert_int_equal(length_of(ATTN_FORWARD, 1, ATTN_WAY_AUTO), one_walk);
    /* Gradients begin on the last rank once it has states; nobody needs that after its last part. */
    assert_int_equal(length_of(ATTN_BACKWARD, 1, ATTN_WAY_AUTO), 2 * one_walk - 1);
    /* Then all ranks read, and make the gradients of their keys, at the same time. */
    assert_int_equal(length_of(ATTN_FORWARD, 0, ATTN_WAY_AUTO), one_walk + GROUPS * PARTS);
    assert_int_equal(length_of(ATTN_BACKWARD, 0, ATTN_WAY_AUTO), 2 * one_walk + GROUPS * PARTS);
    assert_in_range(in_turn, 3 * one_walk, 4 * one_walk); /* what it would be if the ranks took turns */
}

/* In a scan, with all heads in each call, no rank waits: it makes states, then outputs; backward states, gradients of states from
 * nothing, then all gradients. */
static void test_scan(void **state)
{
    (void)state;
    assert_int_equal(length_of(ATTN_FORWARD, 1, ATTN_WAY_DIRECT), 2 * PARTS);
    assert_int_equal(length_of(ATTN_BACKWARD, 1, ATTN_WAY_DIRECT), 3 * PARTS);
    assert_int_equal(length_of(ATTN_FORWARD, 0, ATTN_WAY_DIRECT), 2 * PARTS);
    assert_int_equal(length_of(ATTN_BACKWARD, 0, ATTN_WAY_DIRECT), 3 * PARTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_groups), cmocka_unit_test(test_scan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
