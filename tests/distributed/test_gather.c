/* SPDX-License-Identifier: MIT
 *
 * test_gather.c - one key head after another: how often ranks wait, in how few messages keys come, that they come while the head
 * before is computed, and memory that does not grow with the heads.  (Its bits: test_parts.c and test_heads.c.) */
#include "test.h"
#include "testing/ranks/ranks.h"

enum {
    RANKS = 3,
    PART = 4,
    PARTS = 2,
    OWN = PARTS * PART,
    LEN = RANKS * OWN,
    D = 4,
    RATIO = 2,
    MOST_HEADS = 8,
    KEYS = 1,
    SUMS = 2
};

/* Of a rank, while it executes a plan. */
typedef struct seen {
    attn_transport of;
    int64_t coming[2];     /* messages of keys and of sums that are under way to it */
    int64_t waits[2];      /* for these */
    int64_t sent;          /* messages of keys */
    int64_t alone, hidden; /* cells while no keys are under way, and while some are */
} seen;

typedef struct job {
    attn_op op;
    attn_layout layout;
    int64_t heads_kv;
    attn_distributed_description d[RANKS];
    seen of[RANKS];
} job;

static int send(void *context, int to, int tag, const void *data, size_t bytes, void **request)
{
    seen *x = context;
    x->sent += tag == KEYS;
    return x->of.send(x->of.context, to, tag, data, bytes, request);
}

static int receive(void *context, int from, int tag, void *data, size_t bytes, void **request)
{
    seen *x = context;
    if (tag == KEYS || tag == SUMS) x->coming[tag == SUMS]++;
    return x->of.receive(x->of.context, from, tag, data, bytes, request);
}

static int wait(void *context, int64_t count, void **requests)
{
    seen *x = context;
    for (int n = 0; n < 2; n++) x->waits[n] += x->coming[n] > 0, x->coming[n] = 0;
    return x->of.wait(x->of.context, count, requests);
}

static int progress(void *context) /* (after each cell) */
{
    seen *x = context;
    if (x->coming[0]) x->hidden++;
    else x->alone++;
    return 0;
}

static void on_rank(void *context, const attn_transport *t)
{
    job *j = context;
    seen *x = &j->of[t->rank];
    static _Thread_local float rows[6][MOST_HEADS * RATIO * OWN * D], lse[MOST_HEADS * RATIO * OWN], keys[4][MOST_HEADS * OWN * D];
    const attn_split split = {.struct_size = sizeof split, .part = PART, .layout = j->layout, .way = ATTN_WAY_GATHER};
    const attn_problem p = {.struct_size = sizeof p, .op = j->op, .shape = {1, RATIO * j->heads_kv, j->heads_kv, LEN, LEN, D, D}};
    attn_tensors tensors = {.struct_size = sizeof tensors,
                            .q = attn_in(rows[0]),
                            .k = attn_in(keys[0]),
                            .v = attn_in(keys[1]),
                            .o = attn_out(rows[1]),
                            .lse = attn_out(lse)};
    if (j->op == ATTN_BACKWARD) {
        tensors.grad_o = attn_in(rows[2]), tensors.grad_q = attn_out(rows[3]);
        tensors.grad_k = attn_out(keys[2]), tensors.grad_v = attn_out(keys[3]);
    }
    *x = (seen){.of = *t};
    attn_transport watched = *t;
    watched.context = x, watched.send = send, watched.receive = receive, watched.wait = wait, watched.progress = progress;
    attn_distributed_plan *plan;
    attn_error error;
    if (attn_distributed_plan_create(&plan, &p, &tensors, &split, &watched, NULL, &error) != ATTN_OK) fail_msg("%s", error.message);
    j->d[t->rank].struct_size = sizeof *j->d;
    assert_int_equal(attn_distributed_describe(plan, &j->d[t->rank], NULL), ATTN_OK);
    void *workspace = malloc(attn_distributed_workspace_size(plan));
    assert_non_null(workspace);
    assert_int_equal(attn_distributed_execute(plan, &tensors, workspace, attn_distributed_workspace_size(plan), NULL), ATTN_OK);
    free(workspace);
    attn_distributed_plan_destroy(plan);
}

static void test_rounds(void **state)
{
    static const attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD};
    (void)state;
    for (int op = 0; op < 2; op++)
        for (int layout = ATTN_LAYOUT_CONTIGUOUS; layout < ATTN_LAYOUT_OWNERS; layout++)
            for (int64_t heads = 1; heads <= 4; heads += 3) {
                job j = {.op = ops[op], .layout = (attn_layout)layout, .heads_kv = heads};
                ranks_run(RANKS, 0, on_rank, &j);
                if (ranks_wrong()) fail_msg("%s", ranks_wrong());
                for (int r = 0; r < RANKS; r++) {
                    const int64_t of_head = PARTS * PARTS * RANKS;
                    assert_int_equal(j.d[r].cells, heads * of_head);
                    assert_int_equal(j.of[r].waits[0], heads);
                    assert_int_equal(j.of[r].waits[1], op ? heads : 0);
                    assert_int_equal(j.of[r].sent, heads * (RANKS - 1)); /* all parts of a rank in one */
                    assert_int_equal(j.of[r].alone, of_head);            /* of the last head */
                    assert_int_equal(j.of[r].hidden, (heads - 1) * of_head);
                }
            }
}

/* As much for one head as for many. */
static void test_memory(void **state)
{
    (void)state;
    for (int op = 0; op < 2; op++) {
        job one = {.op = op ? ATTN_BACKWARD : ATTN_FORWARD, .heads_kv = 1}, many = {.op = one.op, .heads_kv = MOST_HEADS};
        ranks_run(RANKS, 0, on_rank, &one);
        ranks_run(RANKS, 0, on_rank, &many);
        for (int r = 0; r < RANKS; r++) assert_int_equal(one.d[r].workspace_bytes, many.d[r].workspace_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rounds), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
