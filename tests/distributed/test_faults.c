/* SPDX-License-Identifier: MIT
 *
 * test_faults.c - what is wrong on one rank: all ranks return the same status and sentence, with outputs untouched; ranks that
 * disagree find out; a message that cannot be sent ends the call on every rank; memory that a rank cannot get does, too. */
#include "test.h"

#include "attn/distributed.h"
#include "limited_allocator.h"
#include "ranks.h"

enum { RANKS = 4, PART = 8, LEN = 64, D = 4, OWN = LEN / RANKS };

/* What a rank does wrong. */
typedef enum wrong {
    NOTHING,
    NO_KEYS,       /* k is missing */
    LATER_QUERIES, /* q is not known when it is executed */
    OTHER_STRIDES, /* of v, in the execution */
    OVERLAP,       /* o is k */
    SMALL_WORKSPACE,
    OTHER_LENGTH, /* of the problem */
    OTHER_PART,
    OTHER_WAY,
    OTHER_ISA,
    OTHER_SEED,
    FUNCTION_ADDED, /* a modifier, in the execution */
    NO_MEMORY,      /* for the plan */
    WRONGS
} wrong;

typedef struct outcome {
    attn_status status;
    char message[sizeof((attn_error *)0)->message];
    int written, planned;
} outcome;

typedef struct job {
    wrong what;
    int who, too;        /* too: fails by what is wrong with NO_KEYS, with another message; 0: none */
    int64_t allocations; /* that succeed, with NO_MEMORY */
    outcome of[RANKS];
} job;

static void modify(void *context, const attn_score_tile *tile) { (void)context, (void)tile; }

/* One rank plans and executes. */
static void on_rank(void *context, const attn_transport *transport)
{
    job *j = context;
    outcome *out = &j->of[transport->rank];
    const wrong what = transport->rank == j->who ? j->what : j->too && transport->rank == j->too ? NO_KEYS : NOTHING;
    float q[OWN * D] = {1}, k[OWN * D] = {2}, v[2 * OWN * D] = {3}, o[OWN * D];
    attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, LEN, LEN, D, D}, .mask.causal = 1, .dropout.probability = 0.5};
    attn_call call = {.struct_size = sizeof call, .dropout_seed = 7};
    attn_tensors t = {.struct_size = sizeof t, .call = &call, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    attn_split split = {.struct_size = sizeof split, .part = PART, .layout = ATTN_LAYOUT_ZIGZAG, .way = ATTN_WAY_RING};
    attn_options options = {.struct_size = sizeof options, .threads = 1};
    limited_allocator memory = {.left = (int)j->allocations};
    attn_distributed_plan *plan = NULL;
    attn_error error = {.status = ATTN_OK};
    memset(o, 0x5a, sizeof o);
    if (what == NO_KEYS) t.k.data = NULL;
    if (what == OTHER_LENGTH) p.mask.window = 1, p.mask.window_left = 3, p.mask.window_right = -1;
    if (what == OTHER_PART) split.part = PART / 2;
    if (what == OTHER_WAY) split.way = ATTN_WAY_DIRECT;
    if (what == OTHER_ISA) options.isa = ATTN_ISA_SCALAR;
    if (what == NO_MEMORY) options.allocator = (attn_allocator){limited_acquire, limited_release, &memory};
    attn_status status = attn_distributed_plan_create(&plan, &p, &t, &split, transport, &options, &error);
    out->planned = status == ATTN_OK;
    if (plan) {
        const size_t size = attn_distributed_workspace_size(plan);
        void *workspace = malloc(size + 1);
        assert_non_null(workspace);
        if (what == LATER_QUERIES) t.q.data = ATTN_LATER;
        if (what == OTHER_STRIDES)
            t.v.stride[0] = 2 * OWN * D, t.v.stride[1] = 2 * OWN * D, t.v.stride[2] = 2 * D, t.v.stride[3] = 1;
        if (what == OVERLAP) t.o.data = k;
        if (what == OTHER_SEED) call.dropout_seed = 8;
        if (what == FUNCTION_ADDED) call.modify_scores = modify;
        status = attn_distributed_execute(plan, &t, workspace, what == SMALL_WORKSPACE ? 1 : size, &error);
        free(workspace);
        attn_distributed_plan_destroy(plan);
    }
    out->status = status;
    memcpy(out->message, error.message, sizeof out->message);
    for (size_t n = 0; n < sizeof o; n++) out->written |= ((const unsigned char *)o)[n] != 0x5a;
    if (what == NO_MEMORY && memory.held) fail_msg("%d blocks are left", (int)memory.held);
}

static void check_same(const job *j)
{
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(j->of[r].status, j->of[0].status);
        assert_string_equal(j->of[r].message, j->of[0].message);
        if (j->of[r].status != ATTN_OK && j->of[r].written) fail_msg("%d on rank %d: rank %d has written", (int)j->what, j->who, r);
        if (j->of[r].status == ATTN_OK && !j->of[r].written) fail_msg("rank %d has written nothing", r);
    }
}

static void test_one_rank(void **state)
{
    static const struct {
        attn_status status;
        const char *message;
    } expected[WRONGS] = {
        [NO_KEYS] = {ATTN_ERR_ARGUMENT, "k is missing; ATTN_FORWARD needs it"},
        [LATER_QUERIES] = {ATTN_ERR_ARGUMENT, "q is ATTN_LATER; this call needs its pointer"},
        [OTHER_STRIDES] = {ATTN_ERR_STRIDE, "distributed: the strides of v differ from those of the plan"},
        [OVERLAP] = {ATTN_ERR_STRIDE, "distributed: o and k share elements; an output must not overlap another tensor"},
        [SMALL_WORKSPACE] = {ATTN_ERR_MEMORY, NULL},
        [OTHER_LENGTH] = {ATTN_ERR_ARGUMENT, "distributed: ranks disagree about the problem, the split or the instruction set"},
        [OTHER_PART] = {ATTN_ERR_ARGUMENT, "distributed: ranks disagree about the problem, the split or the instruction set"},
        [OTHER_WAY] = {ATTN_ERR_ARGUMENT, "distributed: ranks disagree about the problem, the split or the instruction set"},
        [OTHER_ISA] = {ATTN_ERR_ARGUMENT, "distributed: ranks disagree about the problem, the split or the instruction set"},
        [OTHER_SEED] = {ATTN_ERR_ARGUMENT, "distributed: ranks disagree about call.dropout_seed or dropout_offset"},
        [FUNCTION_ADDED] = {ATTN_ERR_ARGUMENT,
                            "distributed: call.modify_scores is set in the plan or in its execution, and not in both"},
    };
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    (void)state;
    assert_int_equal(attn_cpu_describe(&cpu, NULL), ATTN_OK);
    for (int what = NOTHING; what < NO_MEMORY; what++)
        for (int who = 0; who < RANKS; who++) {
            job j = {.what = (wrong)what, .who = who};
            ranks_run(RANKS, (uint64_t)who, on_rank, &j);
            check_same(&j);
            const int same_isa = what == OTHER_ISA && cpu.isa <= ATTN_ISA_SCALAR; /* then nothing is wrong */
            if (same_isa || getenv("ATTN_ISA")) continue;
            assert_int_equal(j.of[0].status, expected[what].status);
            if (expected[what].message) assert_string_equal(j.of[0].message, expected[what].message);
        }
}

/* Of two that fail, the lower rank is heard. */
static void test_two_ranks(void **state)
{
    (void)state;
    for (int who = 0; who < RANKS; who++)
        for (int too = 1; too < RANKS; too++) {
            job j = {.what = NO_MEMORY, .who = who, .too = too};
            if (who == too) continue;
            ranks_run(RANKS, 0, on_rank, &j);
            check_same(&j);
            assert_int_equal(j.of[0].status, who < too ? ATTN_ERR_MEMORY : ATTN_ERR_ARGUMENT);
        }
}

static void test_messages(void **state)
{
    int failed = 1;
    int64_t n = 0;
    (void)state;
    for (; failed; n++) {
        job j = {.what = NOTHING};
        ranks_fail_at(n);
        ranks_run(RANKS, 0, on_rank, &j);
        failed = 0;
        for (int r = 0; r < RANKS; r++) failed += j.of[r].status != ATTN_OK;
        for (int r = 0; r < RANKS && failed; r++) assert_true(j.of[r].status == ATTN_ERR_IO || j.of[r].status == ATTN_OK);
        for (int r = 0; r < RANKS && failed; r++)
            if (j.of[r].status == ATTN_ERR_IO) assert_non_null(strstr(j.of[r].message, "distributed: the transport failed ("));
    }
    ranks_fail_at(-1);
    assert_in_range(n, 20, 200); /* agreement twice, and the keys of each step */
}

static void test_memory(void **state)
{
    (void)state;
    for (int64_t left = 0;; left++) {
        job j = {.what = NO_MEMORY, .who = (int)(left % RANKS), .allocations = left};
        ranks_run(RANKS, 0, on_rank, &j);
        check_same(&j);
        if (j.of[0].status == ATTN_OK) {
            assert_in_range(left, 5, 40);
            break;
        }
        assert_int_equal(j.of[0].status, ATTN_ERR_MEMORY);
        assert_non_null(strstr(j.of[0].message, "cannot allocate"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_rank), cmocka_unit_test(test_two_ranks),
                                       cmocka_unit_test(test_messages), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
