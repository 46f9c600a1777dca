/* SPDX-License-Identifier: MIT
 *
 * test_linear_faults.c - linear attention over ranks, when something is wrong on one of them: all return the same status and
 * sentence, with outputs untouched; a message that fails ends the call on every rank; memory that a rank cannot get, or a call that
 * fails, does, too. */
#include "test.h"

#include "attn/distributed_linear.h"
#include "limited_allocator.h"
#include "testing/ranks/ranks.h"

enum { RANKS = 4, PART = 8, OWN = 2 * PART, LEN = RANKS * OWN, BATCH = 2, D = 4, ROWS = BATCH * OWN, STATE = BATCH * D * D };

/* ---- calls that fail ---- */

static _Thread_local int64_t calls_left = -1; /* that succeed on this thread; -1: all */

/* The linker passes calls that the module makes to this; those without a workspace only check. */
attn_status __wrap_attn_linear_execute(const attn_linear_plan *plan, const attn_linear_tensors *tensors, void *workspace,
                                       size_t size, attn_error *error);
attn_status __real_attn_linear_execute(const attn_linear_plan *plan, const attn_linear_tensors *tensors, void *workspace,
                                       size_t size, attn_error *error);
attn_status __wrap_attn_linear_execute(const attn_linear_plan *plan, const attn_linear_tensors *tensors, void *workspace,
                                       size_t size, attn_error *error)
{
    if (size > 0 && calls_left == 0) {
        *error = (attn_error){.status = ATTN_ERR_ARGUMENT, .message = "a call fails"};
        return ATTN_ERR_ARGUMENT;
    }
    if (size > 0 && calls_left > 0) calls_left--;
    return __real_attn_linear_execute(plan, tensors, workspace, size, error);
}

/* ---- what a rank asks for ---- */

typedef struct asked {
    attn_linear_problem problem;
    attn_linear_tensors tensors;
    attn_split split;
    attn_transport transport;
    attn_options options;
    limited_allocator memory;
    attn_distributed_linear_plan *plan, **to;
    char *workspace;
    size_t size;
    int64_t lengths[2 * BATCH];
    float in[4][2 * ROWS * D], decay[ROWS], denominators[ROWS], state[2][STATE], sum[2][BATCH * D];
    struct {
        float rows[3][ROWS * D], tokens[ROWS], state[STATE], sum[BATCH * D];
    } out;
} asked;

static void fill(asked *a, attn_op op, attn_way way, const attn_transport *transport)
{
    memset(a, 0, sizeof *a);
    for (int n = 0; n < 4; n++)
        for (int i = 0; i < 2 * ROWS * D; i++) a->in[n][i] = (float)((i * (5 + n) + transport->rank) % 11 - 5) / 8;
    for (int n = 0; n < ROWS; n++) a->denominators[n] = 2;
    for (int n = 0; n < 2 * BATCH; n++) a->lengths[n] = LEN - 3;
    a->problem = (attn_linear_problem){
        .struct_size = sizeof a->problem, .op = op, .shape = {BATCH, 1, 1, LEN, LEN, D, D}, .causal = 1, .chunk = PART};
    a->tensors = (attn_linear_tensors){.struct_size = sizeof a->tensors,
                                       .q = attn_in(a->in[0]),
                                       .k = attn_in(a->in[1]),
                                       .v = attn_in(a->in[2]),
                                       .decay = attn_in(a->decay),
                                       .lengths = attn_in(a->lengths),
                                       .initial_state = attn_in(a->state[0]),
                                       .initial_sum = attn_in(a->sum[0])};
    attn_linear_tensors *t = &a->tensors;
    if (op == ATTN_FORWARD) {
        t->o = attn_out(a->out.rows[0]), t->denominators = attn_out(a->out.tokens);
        t->final_state = attn_out(a->out.state), t->final_sum = attn_out(a->out.sum);
    } else {
        t->grad_o = attn_in(a->in[3]), t->o = attn_saved(a->in[3]), t->denominators = attn_saved(a->denominators);
        t->grad_final_state = attn_in(a->state[1]), t->grad_final_sum = attn_in(a->sum[1]);
        t->grad_q = attn_out(a->out.rows[0]), t->grad_k = attn_out(a->out.rows[1]), t->grad_v = attn_out(a->out.rows[2]);
        t->grad_decay = attn_out(a->out.tokens);
        t->grad_initial_state = attn_out(a->out.state), t->grad_initial_sum = attn_out(a->out.sum);
    }
    a->split = (attn_split){.struct_size = sizeof a->split, .part = PART, .way = way};
    a->transport = *transport;
    a->options = (attn_options){.struct_size = sizeof a->options, .threads = 1};
    a->to = &a->plan;
}

/* ---- what is wrong with it ---- */

static size_t sizes[RANKS]; /* of workspaces of the last run in which nothing was wrong */

static attn_output *first_output(asked *a) { return a->problem.op == ATTN_FORWARD ? &a->tensors.o : &a->tensors.grad_q; }

/* In the plan. */
static void no_plan(asked *a) { a->to = NULL; }
static void no_keys(asked *a) { a->tensors.k.data = NULL; }
static void reserved_transport(asked *a) { a->transport.reserved[1] = 1; }
static void with_call(asked *a) { a->tensors.call = (const attn_call *)(const void *)a; }
static void wide_lengths(asked *a) { a->tensors.lengths.stride[0] = 2; }
static void ragged(asked *a) { a->tensors.cu_seqlens = attn_in(a->lengths); }
static void slots(asked *a) { a->tensors.final_slots = attn_in(a->lengths); }
static void half_states(asked *a) { a->tensors.initial_state = (attn_input){a->lengths, ATTN_BF16, {0, 0, 0, 0}}; }
static void small_limit(asked *a) { a->options.workspace_limit = sizes[a->transport.rank] - 256; }
static void smaller_limit(asked *a) { a->options.workspace_limit = 64; }
static void zigzag(asked *a) { a->split.layout = ATTN_LAYOUT_ZIGZAG; }
static void any_order(asked *a) { a->split.any_order = 1; }
static void keys_stay(asked *a) { a->split.way = ATTN_WAY_SPLIT_KEYS; }
static void other_way(asked *a) { a->split.way = a->split.way == ATTN_WAY_DIRECT ? ATTN_WAY_RING : ATTN_WAY_DIRECT; }
static void more_queries(asked *a) { a->problem.shape.len_q++; }
static void unknown_decay(asked *a) { a->problem.decay_kind = (attn_decay_kind)2; }
static void no_memory(asked *a)
{
    a->memory.left = 3;
    a->options.allocator = (attn_allocator){limited_acquire, limited_release, &a->memory};
}
static void huge_heads(asked *a) /* whose q, k and v take little memory; states would have 2^63 bytes */
{
    a->problem.shape.heads_q = a->problem.shape.heads_kv = INT64_C(1) << 46,
    a->problem.shape.dim_v = a->problem.shape.dim_qk = 1 << 8;
}
static void other_part(asked *a) { a->split.part = PART / 2; }
static void other_chunk(asked *a) { a->problem.chunk = PART / 2; }
static void other_epsilon(asked *a) { a->problem.epsilon = 1e-3; }
static void other_isa(asked *a) { a->options.isa = ATTN_ISA_SCALAR; }
static void other_type(asked *a) { a->tensors.decay.dtype = ATTN_F16; }
static void other_tensors(asked *a) { a->tensors.lengths = (attn_input){.data = NULL}; }

/* In the execution. */
static void later_queries(asked *a) { a->tensors.q.data = ATTN_LATER; }
static void other_strides(asked *a)
{
    const int64_t stride[4] = {2 * OWN * D, 2 * OWN * D, 2 * D, 1};
    memcpy(a->tensors.v.stride, stride, sizeof stride);
}
static void over_keys(asked *a) { first_output(a)->data = a->in[1]; }
static void over_lengths(asked *a) { first_output(a)->data = a->lengths; }
static void long_length(asked *a) { a->lengths[1] = LEN + 1; }
static void other_length(asked *a) { a->lengths[1] = 17; }
static void small_workspace(asked *a) { a->size--; }
static void no_workspace(asked *a) { a->workspace = NULL; }
static void over_q(asked *a) { a->tensors.q.data = a->workspace + (64 - (uintptr_t)a->workspace % 64) % 64; }
static void over_end(asked *a) { first_output(a)->data = a->workspace + (a->size - 4) / 4 * 4 - (uintptr_t)a->workspace % 4; }
static void call_fails(asked *a) { (void)a, calls_left = 0; }
static void later_call_fails(asked *a) { (void)a, calls_left = 3; }

#define DISAGREE "distributed: ranks disagree about the problem, the split or the instruction set"
#define OVERLAPS " and the workspace overlap, or its strides make it impossible to tell"

/* A function of the rank that is wrong, called before it plans or before it executes. */
static const struct fault {
    void (*plan)(asked *a), (*execution)(asked *a);
    attn_status status;
    const char *message; /* how it begins; with %s for the first output */
} faults[] = {
    {no_plan, NULL, ATTN_ERR_ARGUMENT, "plan is NULL"},
    {no_keys, NULL, ATTN_ERR_ARGUMENT, "k is "},
    {reserved_transport, NULL, ATTN_ERR_ARGUMENT, "transport.reserved[1] is 1; it must be 0"},
    {with_call, NULL, ATTN_ERR_ARGUMENT, "call is set; it must be NULL"},
    {wide_lengths, NULL, ATTN_ERR_STRIDE, "lengths.stride[0] is 2; it must be dense (0, or 1)"},
    {ragged, NULL, ATTN_ERR_UNSUPPORTED,
     "distributed: cu_seqlens is set; ragged batches are not divided, batches with lengths are"},
    {slots, NULL, ATTN_ERR_UNSUPPORTED, "distributed: final_slots is set; states travel between ranks and are in no pool"},
    {half_states, NULL, ATTN_ERR_UNSUPPORTED, "distributed: initial_state is bf16; states that travel between ranks are f32"},
    {small_limit, NULL, ATTN_ERR_MEMORY, ""},
    {smaller_limit, NULL, ATTN_ERR_MEMORY, "distributed: states take "},
    {zigzag, NULL, ATTN_ERR_UNSUPPORTED,
     "distributed: split.layout is 1; linear attention has 0 (contiguous) only, since states move from rank to rank"},
    {any_order, NULL, ATTN_ERR_UNSUPPORTED, "distributed: split.any_order is 1; linear attention adds along the tokens"},
    {keys_stay, NULL, ATTN_ERR_UNSUPPORTED,
     "distributed: split.way is 3; linear attention has 0 (auto), 1 (ring: a chain) and 2 (direct: a scan)"},
    {more_queries, NULL, ATTN_ERR_SHAPE, "causal needs len_q (65) equal to len_kv (64)"},
    {unknown_decay, NULL, ATTN_ERR_ARGUMENT, "decay_kind is 2; known: "},
    {no_memory, NULL, ATTN_ERR_MEMORY, "cannot allocate "},
    {huge_heads, NULL, ATTN_ERR_SHAPE, ""},
    {other_part, NULL, ATTN_ERR_ARGUMENT, DISAGREE},
    {other_way, NULL, ATTN_ERR_ARGUMENT, DISAGREE},
    {other_chunk, NULL, ATTN_ERR_ARGUMENT, DISAGREE},
    {other_epsilon, NULL, ATTN_ERR_ARGUMENT, DISAGREE},
    {other_isa, NULL, ATTN_ERR_ARGUMENT, DISAGREE},
    {other_type, NULL, ATTN_ERR_ARGUMENT, DISAGREE},
    {other_tensors, NULL, ATTN_ERR_ARGUMENT, DISAGREE},
    {NULL, later_queries, ATTN_ERR_ARGUMENT, "q is ATTN_LATER; "},
    {NULL, other_strides, ATTN_ERR_STRIDE, "v.stride[0] is 128; the plan was made with 64"},
    {NULL, over_keys, ATTN_ERR_STRIDE, "%s and k share elements"},
    {NULL, over_lengths, ATTN_ERR_STRIDE, "distributed: %s and lengths share elements; an output must not overlap another tensor"},
    {NULL, with_call, ATTN_ERR_ARGUMENT, "call is set; it must be NULL"},
    {NULL, other_tensors, ATTN_ERR_ARGUMENT, "lengths is missing"},
    {NULL, long_length, ATTN_ERR_ARGUMENT, "lengths[1] is 65; it must be between 0 and 64"},
    {NULL, other_length, ATTN_ERR_ARGUMENT, "distributed: ranks disagree about lengths"},
    {NULL, small_workspace, ATTN_ERR_MEMORY, "workspace_size is "},
    {NULL, no_workspace, ATTN_ERR_ARGUMENT, "workspace is NULL"},
    {NULL, over_q, ATTN_ERR_ARGUMENT, "distributed: q" OVERLAPS},
    {NULL, over_end, ATTN_ERR_ARGUMENT, "distributed: %s" OVERLAPS},
    {NULL, call_fails, ATTN_ERR_ARGUMENT, "a call fails"},
    {NULL, later_call_fails, ATTN_ERR_ARGUMENT, "a call fails"},
};
enum { FAULTS = sizeof faults / sizeof *faults };

/* ---- running ---- */

typedef struct job {
    const struct fault *fault; /* NULL: nothing is wrong */
    int who;
    attn_op op;
    attn_way way;
    int allocations; /* above 0: that succeed on rank `who` */
    struct {
        attn_status status;
        char message[sizeof((attn_error *)0)->message];
        int written, planned;
    } of[RANKS];
} job;

static void on_rank(void *context, const attn_transport *transport)
{
    job *j = context;
    const int me = transport->rank, is_wrong = j->fault && me == j->who;
    attn_error error = {.status = ATTN_OK};
    asked *a = malloc(sizeof *a);
    calls_left = -1;
    fill(a, j->op, j->way, transport);
    memset(&a->out, 0x5a, sizeof a->out);
    if (is_wrong && j->fault->plan) j->fault->plan(a);
    if (is_wrong && j->allocations > 0) a->memory.left = j->allocations;
    j->of[me].status =
        attn_distributed_linear_plan_create(a->to, &a->problem, &a->tensors, &a->split, &a->transport, &a->options, &error);
    j->of[me].planned = j->of[me].status == ATTN_OK;
    if (a->plan) {
        a->size = attn_distributed_linear_workspace_size(a->plan);
        char *const memory = a->workspace = malloc(a->size + 1);
        if (!j->fault) sizes[me] = a->size;
        if (is_wrong && j->fault->execution) j->fault->execution(a);
        j->of[me].status = attn_distributed_linear_execute(a->plan, &a->tensors, a->workspace, a->size, &error);
        free(memory);
        attn_distributed_linear_plan_destroy(a->plan);
    }
    memcpy(j->of[me].message, error.message, sizeof error.message);
    j->of[me].written = 0;
    for (size_t n = 0; n < sizeof a->out; n++) j->of[me].written |= ((const unsigned char *)&a->out)[n] != 0x5a;
    if (a->memory.held) snprintf(j->of[me].message, sizeof j->of[me].message, "%d blocks are left", a->memory.held);
    free(a);
}

static void run(job *j, uint64_t delays)
{
    ranks_run(RANKS, delays, on_rank, j);
    if (ranks_wrong()) fail_msg("%s", ranks_wrong());
}

static void check_same(const job *j)
{
    const int fails_late = j->fault && (j->fault->execution == call_fails || j->fault->execution == later_call_fails);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(j->of[r].status, j->of[0].status);
        assert_string_equal(j->of[r].message, j->of[0].message);
        if (j->of[r].status != ATTN_OK && j->of[r].written && !fails_late)
            fail_msg("fault %d on rank %d: rank %d has written", (int)(j->fault - faults), j->who, r);
        if (j->of[r].status == ATTN_OK && !j->of[r].written) fail_msg("rank %d has written nothing", r);
    }
}

static void check_fault(const struct fault *f, int who, attn_op op, attn_way way, int same_isa)
{
    job j = {.fault = f, .who = who, .op = op, .way = way};
    char message[sizeof((attn_error *)0)->message];
    const char *at = strstr(f->message, "%s");
    snprintf(message, sizeof message, "%.*s%s%s", at ? (int)(at - f->message) : 1000, f->message,
             !at                  ? ""
             : op == ATTN_FORWARD ? "o"
                                  : "grad_q",
             at ? at + 2 : "");
    run(&j, (uint64_t)who);
    check_same(&j);
    if (f->plan == other_isa && same_isa) return;
    if (j.of[0].status != f->status || strncmp(j.of[0].message, message, strlen(message)) != 0)
        fail_msg("fault %d on rank %d: status %d, '%s'", (int)(f - faults), who, (int)j.of[0].status, j.of[0].message);
    for (int r = 0; r < RANKS; r++) assert_int_equal(j.of[r].planned, f->plan == NULL);
}

static void test_one_rank(void **state)
{
    attn_options here = {.struct_size = sizeof here};
    (void)state;
    assert_int_equal(attn_options_resolve(NULL, &here, NULL), ATTN_OK);
    for (int op = ATTN_FORWARD; op <= ATTN_BACKWARD; op++)
        for (int who = 0; who < RANKS; who++) {
            const attn_way way = who % 2 ? ATTN_WAY_DIRECT : ATTN_WAY_RING;
            job j = {.op = (attn_op)op, .way = way};
            run(&j, 0);
            check_same(&j);
            assert_int_equal(j.of[0].status, ATTN_OK);
            for (int n = 0; n < FAULTS; n++) check_fault(&faults[n], who, (attn_op)op, way, here.isa == ATTN_ISA_SCALAR);
        }
}

/* Each call of a transport's function fails in turn. */
static void test_messages(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        int failed = 1;
        int64_t n = 0;
        for (; failed; n++) {
            job j = {.op = (attn_op)(k / 2), .way = k % 2 ? ATTN_WAY_DIRECT : ATTN_WAY_RING};
            ranks_fail_at(n);
            run(&j, 0);
            failed = 0;
            for (int r = 0; r < RANKS; r++) failed += j.of[r].status != ATTN_OK;
            for (int r = 0; r < RANKS; r++) {
                if (j.of[r].status == ATTN_OK) continue;
                assert_int_equal(j.of[r].status, ATTN_ERR_IO);
                assert_non_null(strstr(j.of[r].message, "distributed: the transport failed ("));
            }
        }
        ranks_fail_at(-1);
        assert_in_range(n, 100, 300);
    }
}

static void test_memory(void **state)
{
    const struct fault none = {no_memory, NULL, ATTN_ERR_MEMORY, ""};
    (void)state;
    for (int left = 1;; left++) {
        job j = {.fault = &none, .who = left % RANKS, .op = ATTN_BACKWARD, .allocations = left};
        run(&j, 0);
        check_same(&j);
        if (j.of[0].status == ATTN_OK) {
            assert_in_range(left, 4, 10);
            break;
        }
        assert_int_equal(j.of[0].status, ATTN_ERR_MEMORY);
        assert_non_null(strstr(j.of[0].message, "cannot allocate"));
    }
}

static void test_null(void **state)
{
    attn_error error;
    attn_distributed_linear_description d = {.struct_size = sizeof d};
    (void)state;
    assert_int_equal(attn_distributed_linear_workspace_size(NULL), 0);
    attn_distributed_linear_plan_destroy(NULL);
    assert_int_equal(attn_distributed_linear_describe(NULL, &d, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_distributed_linear_execute(NULL, NULL, NULL, 0, &error), ATTN_ERR_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_rank), cmocka_unit_test(test_messages),
                                       cmocka_unit_test(test_memory), cmocka_unit_test(test_null)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
