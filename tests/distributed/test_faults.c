/* SPDX-License-Identifier: MIT
 *
 * test_faults.c - what is wrong on one rank: all ranks return the same status and sentence, with outputs untouched; ranks that
 * disagree find out; a message that fails ends the call on every rank; memory that a rank cannot get, or a cell that fails, does,
 * too. */
#include "test.h"

#include "asked.h"
#include "testing/random/share.h"
#include "testing/ranks/ranks.h"

/* ---- cells that fail ---- */

/* How many calls of this thread succeed; -1: all.  Then all others fail, or one. */
static _Thread_local int64_t cells_left = -1;
static _Thread_local int fails_once;

/* The linker passes calls that the library makes for cells to this. */
attn_status __wrap_attn_execute(const attn_plan *plan, const attn_tensors *tensors, void *workspace, size_t size,
                                attn_error *error);
attn_status __real_attn_execute(const attn_plan *plan, const attn_tensors *tensors, void *workspace, size_t size,
                                attn_error *error);
attn_status __wrap_attn_execute(const attn_plan *plan, const attn_tensors *tensors, void *workspace, size_t size, attn_error *error)
{
    if (cells_left == 0) {
        if (fails_once) cells_left = -1;
        *error = (attn_error){.status = ATTN_ERR_ARGUMENT, .message = "a cell fails"};
        return ATTN_ERR_ARGUMENT;
    }
    if (cells_left > 0) cells_left--;
    return __real_attn_execute(plan, tensors, workspace, size, error);
}

/* ---- what a rank does wrong ---- */

static size_t sizes[ASKED_RANKS]; /* of workspaces of the last run in which nothing was wrong */

static void modify(void *context, const attn_score_tile *tile) { (void)context, (void)tile; }

static void set_strides(attn_input *slot, int64_t batch, int64_t head, int64_t token, int64_t channel)
{
    const int64_t stride[4] = {batch, head, token, channel};
    memcpy(slot->stride, stride, sizeof stride);
}

/* The first output of the operation. */
static attn_output *first_output(asked *a)
{
    attn_tensors *t = &a->tensors;
    return a->problem.op == ATTN_FORWARD ? &t->o : a->problem.op == ATTN_BACKWARD ? &t->grad_q : &t->second_q;
}

/* In the plan. */
static void no_plan(asked *a) { a->to = NULL; }
static void no_keys(asked *a) { a->tensors.k.data = NULL; }
static void reserved_transport(asked *a) { a->transport.reserved[1] = 1; }
static void reserved_call(asked *a) { a->call.reserved = 1; }
static void wide_lengths(asked *a) { a->tensors.lengths_kv.stride[0] = 2; }
static void small_limit(asked *a) { a->options.workspace_limit = sizes[a->transport.rank] - 1; }
static void only_scores(asked *a) { a->call.modify_scores = modify; }
static void only_slopes(asked *a) { a->call.modify_slopes = modify; }
static const attn_origin part_of = {.q = 8};
static void other_origin(asked *a) { a->call.origin = &part_of; }
static void other_length(asked *a) { a->lengths[1] = 17; }
static void other_window(asked *a)
{
    a->problem.mask.window = 1, a->problem.mask.window_left = 3, a->problem.mask.window_right = -1;
}
static void other_part(asked *a) { a->split.part = ASKED_PART / 2; }
static void other_order(asked *a) { a->split.any_order = 1; }
static void third_order(asked *a) { a->split.any_order = 2; }
static void other_way(asked *a) { a->split.way = ATTN_WAY_DIRECT; }
static void other_isa(asked *a) { a->options.isa = ATTN_ISA_SCALAR; }
static void set_t5(asked *a, int64_t buckets, int causal)
{
    a->problem.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_T5, .buckets = buckets, .max_distance = 16, .causal = causal};
}
static void t5_table(asked *a) { set_t5(a, 8, 0); }
static void other_buckets(asked *a) { set_t5(a, 6, 0); }
static void other_causal(asked *a) { set_t5(a, 8, 1); }
static void other_type(asked *a) { a->tensors.bias_table.dtype = ATTN_F16; }
static void with_modifier(asked *a) { a->call.modify_scores = modify, a->call.modify_slopes = a->problem.op ? modify : NULL; }
/* Behind o of backward, with space for an output. */
static int64_t *starts_of(asked *a) { return (int64_t *)(void *)(a->in[4] + ASKED_ROWS * ASKED_D); }
static void packed(asked *a) /* in one batch entry */
{
    const int64_t starts[] = {0, 5, ASKED_LEN};
    memcpy(starts_of(a), starts, sizeof starts);
    a->problem.shape.batch = 2;
    a->tensors.cu_seqlens_q = a->tensors.cu_seqlens_kv = attn_in(starts_of(a));
    a->tensors.lengths_kv.data = NULL;
}
static void no_memory(asked *a)
{
    a->memory.left = 3;
    a->options.allocator = (attn_allocator){limited_acquire, limited_release, &a->memory};
}
/* Takes little memory, since all heads have the same q and k; a message of keys would have 2^63 bytes. */
static void huge_heads(asked *a)
{
    attn_shape *const s = &a->problem.shape;
    s->heads_q = s->heads_kv = INT64_C(1) << 40, s->dim_qk = 1 << 17, s->dim_v = 0;
    set_strides(&a->tensors.q, 0, 0, ASKED_D, 1);
    set_strides(&a->tensors.k, 0, 0, ASKED_D, 1);
}

/* In the execution. */
static void later_queries(asked *a) { a->tensors.q.data = ATTN_LATER; }
static void other_strides(asked *a)
{
    set_strides(&a->tensors.v, 2 * ASKED_HEADS * ASKED_OWN * ASKED_D, 2 * ASKED_OWN * ASKED_D, 2 * ASKED_D, 1);
}
static void over_keys(asked *a) { first_output(a)->data = a->in[1]; }
static void over_starts(asked *a) { first_output(a)->data = starts_of(a); }
static void small_workspace(asked *a) { a->size = 1; }
static void no_workspace(asked *a) { a->workspace = NULL; }
static void over_q(asked *a) { a->tensors.q.data = a->workspace + (64 - (uintptr_t)a->workspace % 64) % 64; }
static void over_k(asked *a) { a->tensors.k.data = a->workspace + (64 - (uintptr_t)a->workspace % 64) % 64 + a->size / 128 * 64; }
static void over_end(asked *a) /* with its last byte */
{
    first_output(a)->data = a->workspace + (a->size - 4) / 4 * 4 - (uintptr_t)a->workspace % 4;
}
static void other_seed(asked *a) { a->call.dropout_seed = 8; }
static void other_offset(asked *a) { a->call.dropout_offset = 1; }
static void cell_fails(asked *a) { (void)a, cells_left = 0; }
static void last_cell_fails(asked *a) { (void)a, cells_left = 3; }
static void one_cell_fails(asked *a) { (void)a, cells_left = 1, fails_once = 1; }

#define DISAGREE "distributed: ranks disagree about the problem, the split or the instruction set"
#define OVERLAPS " and the workspace overlap, or its strides make it impossible to tell"

/* A function of the rank that is wrong, called before it plans or before it executes. */
typedef struct fault {
    void (*plan)(asked *a), (*execution)(asked *a);
    attn_status status;
    const char *forward, *backward; /* how the message begins; NULL: the operation has no such fault */
    void (*all)(asked *a);          /* called on all ranks before they plan */
} fault;

static const fault faults[] = {
    {.plan = no_plan, .status = ATTN_ERR_ARGUMENT, .forward = "plan is NULL", .backward = "plan is NULL"},
    {no_keys, NULL, ATTN_ERR_ARGUMENT, "k is missing; ATTN_FORWARD needs it", "k is missing; ATTN_BACKWARD needs it", NULL},
    {reserved_transport, NULL, ATTN_ERR_ARGUMENT, "transport.reserved[1] is 1; it must be 0",
     "transport.reserved[1] is 1; it must be 0", NULL},
    {reserved_call, NULL, ATTN_ERR_ARGUMENT, "call.reserved is 1; it must be 0", "call.reserved is 1; it must be 0", NULL},
    {NULL, reserved_call, ATTN_ERR_ARGUMENT, "call.reserved is 1; it must be 0", "call.reserved is 1; it must be 0", NULL},
    {only_scores, NULL, ATTN_ERR_ARGUMENT, NULL,
     "call.modify_scores is set and call.modify_slopes is NULL; the derivatives need it", NULL},
    {NULL, only_scores, ATTN_ERR_ARGUMENT, NULL,
     "call.modify_scores is set and call.modify_slopes is NULL; the derivatives need it", NULL},
    {only_slopes, NULL, ATTN_ERR_ARGUMENT, "call.modify_slopes is set and call.modify_scores is NULL",
     "call.modify_slopes is set and call.modify_scores is NULL", NULL},
    {NULL, with_modifier, ATTN_ERR_ARGUMENT,
     "distributed: call.modify_scores is set in the plan or in its execution, and not in both",
     "distributed: call.modify_scores is set in the plan or in its execution, and not in both", NULL},
    {wide_lengths, NULL, ATTN_ERR_STRIDE, "lengths_kv must be dense", "lengths_kv must be dense", NULL},
    {small_limit, NULL, ATTN_ERR_MEMORY, "distributed: the workspace takes ", "distributed: the workspace takes ", NULL},
    {no_memory, NULL, ATTN_ERR_MEMORY, "", "", NULL},
    {huge_heads, NULL, ATTN_ERR_SHAPE, "distributed: k of a part is too large: its bytes overflow 64 bits", NULL, NULL},
    {other_length, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {other_origin, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {NULL, other_origin, ATTN_ERR_ARGUMENT, "call.origin is set; the plan was made without one",
     "call.origin is set; the plan was made without one", NULL},
    {other_window, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {other_part, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {other_way, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {other_order, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {third_order, NULL, ATTN_ERR_ARGUMENT, "split.any_order is 2; it must be 0 or 1", "split.any_order is 2; it must be 0 or 1",
     NULL},
    {other_isa, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {t5_table, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {other_buckets, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, t5_table},
    {other_causal, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, t5_table},
    {other_type, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {with_modifier, NULL, ATTN_ERR_ARGUMENT, DISAGREE, DISAGREE, NULL},
    {NULL, later_queries, ATTN_ERR_ARGUMENT, "q is ATTN_LATER; this call needs its pointer",
     "q is ATTN_LATER; this call needs its pointer", NULL},
    {NULL, other_strides, ATTN_ERR_STRIDE, "distributed: the strides of v differ from those of the plan",
     "distributed: the strides of v differ from those of the plan", NULL},
    {NULL, over_keys, ATTN_ERR_STRIDE, "distributed: o and k share elements; an output must not overlap another tensor",
     "distributed: grad_q and k share elements; an output must not overlap another tensor", NULL},
    {NULL, over_starts, ATTN_ERR_STRIDE,
     "distributed: o and cu_seqlens_q share elements; an output must not overlap another tensor",
     "distributed: grad_q and cu_seqlens_q share elements; an output must not overlap another tensor", packed},
    {NULL, small_workspace, ATTN_ERR_MEMORY, "", "", NULL},
    {NULL, no_workspace, ATTN_ERR_ARGUMENT, "workspace is NULL", "workspace is NULL", NULL},
    {NULL, over_q, ATTN_ERR_ARGUMENT, "distributed: q" OVERLAPS, "distributed: q" OVERLAPS, NULL},
    {NULL, over_k, ATTN_ERR_ARGUMENT, "distributed: k" OVERLAPS, "distributed: k" OVERLAPS, NULL},
    {NULL, over_end, ATTN_ERR_ARGUMENT, "distributed: o" OVERLAPS, "distributed: grad_q" OVERLAPS, NULL},
    {NULL, other_seed, ATTN_ERR_ARGUMENT, "distributed: ranks disagree about call.dropout_seed or dropout_offset",
     "distributed: ranks disagree about call.dropout_seed or dropout_offset", NULL},
    {NULL, other_offset, ATTN_ERR_ARGUMENT, "distributed: ranks disagree about call.dropout_seed or dropout_offset",
     "distributed: ranks disagree about call.dropout_seed or dropout_offset", NULL},
    {NULL, cell_fails, ATTN_ERR_ARGUMENT, "a cell fails", "a cell fails", NULL},
    {NULL, last_cell_fails, ATTN_ERR_ARGUMENT, "a cell fails", "a cell fails", NULL},
    {NULL, one_cell_fails, ATTN_ERR_ARGUMENT, "a cell fails", "a cell fails", NULL},
};
enum { FAULTS = sizeof faults / sizeof *faults };

/* ---- running ---- */

typedef struct job {
    const fault *fault; /* NULL: nothing is wrong */
    int who, too;       /* too: another rank, whose keys are missing; 0: none */
    attn_op op;
    attn_way way;
    int64_t allocations; /* above 0: that succeed on rank `who` */
    asked_outcome of[ASKED_RANKS];
} job;

/* Of this thread. */
static _Thread_local const fault *current;
static _Thread_local int is_wrong, lacks_keys;
static _Thread_local int64_t allocations;

static void spoil(asked *a, int executes)
{
    if (!executes && current && current->all) current->all(a);
    if (!executes && lacks_keys) no_keys(a);
    if (!is_wrong) return;
    void (*const call)(asked *) = !current ? NULL : executes ? current->execution : current->plan;
    if (call) call(a);
    if (!executes && allocations > 0) a->memory.left = (int)allocations;
}

static void on_rank(void *context, const attn_transport *transport)
{
    job *j = context;
    asked *a = malloc(sizeof *a);
    assert_non_null(a);
    current = j->fault, is_wrong = transport->rank == j->who, allocations = j->allocations, cells_left = -1, fails_once = 0;
    lacks_keys = j->too && transport->rank == j->too;
    asked_fill(a, j->op, transport);
    a->split.way = j->way;
    asked_run(a, spoil, &j->of[transport->rank]);
    if (!j->fault) sizes[transport->rank] = a->size;
    if (a->memory.held) fail_msg("%d blocks are left", a->memory.held);
    free(a);
}

static void run(job *j, uint64_t delays)
{
    ranks_run(ASKED_RANKS, delays, on_rank, j);
    if (ranks_wrong()) fail_msg("%s", ranks_wrong());
}

static int cells_failed(const job *j)
{
    const fault *f = j->fault;
    return f && (f->execution == cell_fails || f->execution == last_cell_fails || f->execution == one_cell_fails);
}

static void check_same(const job *j)
{
    for (int r = 0; r < ASKED_RANKS; r++) {
        assert_int_equal(j->of[r].status, j->of[0].status);
        assert_string_equal(j->of[r].message, j->of[0].message);
        if (j->of[r].status != ATTN_OK && j->of[r].written && !cells_failed(j))
            fail_msg("fault %d on rank %d: rank %d has written", (int)(j->fault - faults), j->who, r);
        if (j->of[r].status == ATTN_OK && !j->of[r].written) fail_msg("rank %d has written nothing", r);
    }
}

static void check_fault(const fault *f, int who, attn_op op, attn_way way, int same_isa)
{
    job j = {.fault = f, .who = who, .op = op, .way = way};
    const char *message = op == ATTN_FORWARD ? f->forward : f->backward;
    if (op == ATTN_DOUBLE_BACKWARD &&
        (!message || f->plan == with_modifier || strstr(message, "BACKWARD") || strstr(message, "grad_q")))
        return;                                                              /* another message */
    if (!message || (f->plan == huge_heads && way != ATTN_WAY_RING)) return; /* (their number would not be agreed about) */
    run(&j, (uint64_t)who);
    check_same(&j);
    if (f->plan == other_isa && same_isa) return;
    if (cells_failed(&j) && way == ATTN_WAY_HEADS && who >= ASKED_HEADS) return; /* without heads, it calls nothing */
    if (j.of[0].status != f->status || strncmp(j.of[0].message, message, strlen(message)) != 0)
        fail_msg("fault %d on rank %d: status %d, '%s'", (int)(f - faults), who, (int)j.of[0].status, j.of[0].message);
    for (int r = 0; r < ASKED_RANKS; r++) assert_int_equal(j.of[r].planned, f->plan == NULL);
}

/* Two ranks of a group divide two heads; two of four ranks have none. */
static const attn_way ways[] = {ATTN_WAY_RING, ATTN_WAY_HEADS_RING, ATTN_WAY_HEADS, ATTN_WAY_GATHER};
enum { WAYS = sizeof ways / sizeof *ways };
static const attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_DOUBLE_BACKWARD};
enum { OPS = sizeof ops / sizeof *ops };

static void test_one_rank(void **state)
{
    attn_options here = {.struct_size = sizeof here};
    (void)state;
    assert_int_equal(attn_options_resolve(NULL, &here, NULL), ATTN_OK);
    const int share = (int)share_stride();
    for (int n = 0; n < OPS; n++)
        for (int who = 0; who < ASKED_RANKS; who++)
            for (size_t w = 0; w < WAYS; w++) {
                const attn_op op = ops[n];
                if (op == ATTN_DOUBLE_BACKWARD && who % 2) continue; /* (the faults of backward) */
                job j = {.op = op, .way = ways[w]};
                run(&j, 0);
                check_same(&j);
                assert_int_equal(j.of[0].status, ATTN_OK);
                for (int f = who % share; f < FAULTS; f += share)
                    check_fault(&faults[f], who, op, ways[w], here.isa == ATTN_ISA_SCALAR);
            }
}

static const fault *fault_of(void (*plan)(asked *))
{
    for (int n = 0; n < FAULTS; n++)
        if (faults[n].plan == plan) return &faults[n];
    return NULL;
}

/* Of two that fail, the lower rank is heard. */
static void test_two_ranks(void **state)
{
    (void)state;
    for (int who = 0; who < ASKED_RANKS; who++)
        for (int too = 1; too < ASKED_RANKS; too++) {
            job j = {.fault = fault_of(no_memory), .who = who, .too = too, .way = ways[(who + too) % WAYS]};
            if (who == too) continue;
            run(&j, 0);
            check_same(&j);
            assert_int_equal(j.of[0].status, who < too ? ATTN_ERR_MEMORY : ATTN_ERR_ARGUMENT);
        }
}

/* Each call of a transport's function fails in turn. */
static void test_messages(void **state)
{
    (void)state;
    for (int k = 0; k < (int)OPS * (int)WAYS; k++) {
        const int op = k % (int)OPS, way = k / (int)OPS;
        int failed = 1;
        int64_t n = 0;
        for (; failed; n += share_stride()) {
            job j = {.op = ops[op], .way = ways[way]};
            ranks_fail_at(n);
            run(&j, 0);
            failed = 0;
            for (int r = 0; r < ASKED_RANKS; r++) failed += j.of[r].status != ATTN_OK;
            for (int r = 0; r < ASKED_RANKS; r++) {
                if (j.of[r].status == ATTN_OK) continue;
                assert_int_equal(j.of[r].status, ATTN_ERR_IO);
                assert_non_null(strstr(j.of[r].message, "distributed: the transport failed ("));
            }
        }
        ranks_fail_at(-1);
        assert_in_range(n, ways[way] != ATTN_WAY_RING ? 60 : op ? 200 : 100, 400 * (op + 1));
    }
}

static void test_memory(void **state)
{
    (void)state;
    for (size_t w = 0; w < 2 * WAYS; w++)
        for (int64_t left = 1;; left++) {
            job j = {.fault = fault_of(no_memory),
                     .who = (int)(left % ASKED_RANKS),
                     .op = w < WAYS ? ATTN_FORWARD : ATTN_DOUBLE_BACKWARD,
                     .way = ways[w % WAYS],
                     .allocations = left};
            run(&j, 0);
            check_same(&j);
            if (j.of[0].status == ATTN_OK) {
                assert_in_range(left, 5, 40);
                break;
            }
            assert_int_equal(j.of[0].status, ATTN_ERR_MEMORY);
            assert_non_null(strstr(j.of[0].message, "cannot allocate"));
        }
}

static void test_null(void **state)
{
    (void)state;
    assert_int_equal(attn_distributed_workspace_size(NULL), 0);
    attn_distributed_plan_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_rank), cmocka_unit_test(test_two_ranks),
                                       cmocka_unit_test(test_messages), cmocka_unit_test(test_memory), cmocka_unit_test(test_null)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
