/* SPDX-License-Identifier: MIT
 *
 * test_auto.c - ATTN_WAY_AUTO over ranks: the way that is predicted to be the fastest runs, with the bits of direct; and where it
 * is not possible, on whichever rank, all ranks go directly. */
#include "test.h"
#include "testing/ranks/ranks.h"

enum { RANKS = 4, HEADS = 4, PART = 16, LEN = 128, OWN = LEN / RANKS, D = 4, ROWS = HEADS * OWN };

static const attn_split_machine slow = {sizeof slow, 5e12, 1e5, 5e-6, 0, {0}}, fast = {sizeof fast, 1e9, 1e12, 1e-9, 0, {0}},
                                broken = {sizeof broken, 5e12, -1, 5e-6, 0, {0}};

typedef struct auto_case {
    const char *name;
    attn_op op;
    const attn_split_machine *machine, *machine_of_last;
    size_t limit, limit_of_last; /* of workspace */
    attn_layout layout;
    int bias;         /* 1: of all heads, with its gradient; 2: without */
    attn_way way;     /* that is taken; auto: none */
    const char *says; /* in the sentence of the description, or of the error */
    int64_t lost;     /* above 0: number of an allocation that the last rank does not get */
} auto_case;

/* Contiguous causal work is uneven, but of each head.  With a bias, which travels to where the heads are, heads take more than
 * 80000 bytes, and direct less. */
static const auto_case cases[] = {
    {"a slow network", ATTN_FORWARD, &slow, &slow, 0, 0, ATTN_LAYOUT_ZIGZAG, 0, ATTN_WAY_HEADS, "heads: ", 0},
    {"backward", ATTN_BACKWARD, &slow, &slow, 0, 0, ATTN_LAYOUT_ZIGZAG, 0, ATTN_WAY_HEADS, "heads: ", 0},
    {"a fast network", ATTN_FORWARD, &fast, &fast, 0, 0, ATTN_LAYOUT_ZIGZAG, 0, ATTN_WAY_DIRECT, "predicted, ", 0},
    {"limits", ATTN_FORWARD, &fast, &fast, 80000, 80000, ATTN_LAYOUT_CONTIGUOUS, 2, ATTN_WAY_DIRECT,
     "is predicted: distributed: the workspace takes", 0},
    {"a limit of one rank", ATTN_FORWARD, &fast, &fast, 0, 80000, ATTN_LAYOUT_CONTIGUOUS, 2, ATTN_WAY_DIRECT,
     "is predicted: distributed: the workspace takes", 0},
    {"a limit below all", ATTN_FORWARD, &slow, &slow, 0, 1, ATTN_LAYOUT_ZIGZAG, 0, ATTN_WAY_AUTO, "options.workspace_limit is 1 ",
     0},
    {"a sum over heads", ATTN_BACKWARD, &slow, &slow, 0, 0, ATTN_LAYOUT_ZIGZAG, 1, ATTN_WAY_DIRECT,
     "direct: all heads share what is summed", 0},
    {"another machine", ATTN_FORWARD, &slow, NULL, 0, 0, ATTN_LAYOUT_ZIGZAG, 0, ATTN_WAY_AUTO,
     "ranks disagree about the problem, the split", 0},
    {"no machine", ATTN_FORWARD, &slow, &broken, 0, 0, ATTN_LAYOUT_ZIGZAG, 0, ATTN_WAY_AUTO,
     "machine.bytes_per_second is -1; it must be above 0", 0},
    /* (Which number it is, others than that of a prediction say by their message.) */
    {"one rank cannot predict", ATTN_FORWARD, &slow, &slow, 0, 0, ATTN_LAYOUT_ZIGZAG, 0, ATTN_WAY_AUTO, "bytes of what ranks do",
     7},
};

/* What ranks get; all of it is compared. */
typedef struct numbers {
    float rows[RANKS][3][ROWS * D], lse[RANKS][ROWS], bias[RANKS][OWN * LEN];
} numbers;

typedef struct job {
    const auto_case *of;
    attn_way way; /* that is asked for */
    numbers got;
    attn_distributed_description d[RANKS];
    attn_error error[RANKS];
} job;

/* All allocations but one. */
static void *acquire_others(void *context, size_t bytes)
{
    int64_t *const left = context;
    return --*left == 0 ? NULL : malloc(bytes);
}

static void release(void *context, void *memory)
{
    (void)context;
    free(memory);
}

static void on_rank(void *context, const attn_transport *transport)
{
    job *j = context;
    const auto_case *c = j->of;
    int64_t left = c->lost;
    const int r = transport->rank, last = r == RANKS - 1;
    static const attn_call call = {.struct_size = sizeof call};
    const attn_problem p = {.struct_size = sizeof p, .op = c->op, .shape = {1, HEADS, HEADS, LEN, LEN, D, D}, .mask.causal = 1};
    const attn_split split = {.struct_size = sizeof split,
                              .part = PART,
                              .layout = c->layout,
                              .way = j->way,
                              .machine = last ? c->machine_of_last : c->machine};
    attn_options options = {.struct_size = sizeof options, .threads = 1, .workspace_limit = last ? c->limit_of_last : c->limit};
    if (last && c->lost && j->way == ATTN_WAY_AUTO) options.allocator = (attn_allocator){acquire_others, release, &left};
    float in[5][ROWS * D], lse[ROWS], bias[OWN * LEN];
    for (int n = 0; n < 5 * ROWS * D; n++) (&in[0][0])[n] = (float)((n * 7 + r) % 13 - 6) / 8;
    for (int n = 0; n < ROWS; n++) lse[n] = 2;
    for (int n = 0; n < OWN * LEN; n++) bias[n] = (float)(n % 5) / 4;
    attn_tensors t = {.struct_size = sizeof t, .call = &call, .q = attn_in(in[0]), .k = attn_in(in[1]), .v = attn_in(in[2])};
    if (c->bias) t.bias = (attn_input){bias, ATTN_F32, {ATTN_BROADCAST, ATTN_BROADCAST, LEN, 1}};
    if (c->bias == 1) t.grad_bias = attn_out(j->got.bias[r]);
    if (c->op == ATTN_FORWARD) t.o = attn_out(j->got.rows[r][0]), t.lse = attn_out(j->got.lse[r]);
    else {
        t.o = attn_out(in[3]), t.lse = attn_out(lse), t.grad_o = attn_in(in[4]);
        t.grad_q = attn_out(j->got.rows[r][0]), t.grad_k = attn_out(j->got.rows[r][1]), t.grad_v = attn_out(j->got.rows[r][2]);
    }
    attn_distributed_plan *plan;
    if (attn_distributed_plan_create(&plan, &p, &t, &split, transport, &options, &j->error[r]) != ATTN_OK) return;
    j->d[r].struct_size = sizeof j->d[r];
    (void)attn_distributed_describe(plan, &j->d[r], NULL);
    const size_t size = attn_distributed_workspace_size(plan);
    void *workspace = malloc(size);
    (void)attn_distributed_execute(plan, &t, workspace, size, &j->error[r]);
    free(workspace);
    attn_distributed_plan_destroy(plan);
}

static job *run(const auto_case *c, attn_way way)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->of = c, j->way = way;
    ranks_run(RANKS, 0, on_rank, j);
    if (ranks_wrong()) fail_msg("%s: %s", c->name, ranks_wrong());
    return j;
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const auto_case *c = &cases[n];
        job *const j = run(c, ATTN_WAY_AUTO), *const direct = run(c, ATTN_WAY_DIRECT);
        for (int r = 0; r < RANKS; r++) {
            const char *said = c->way ? j->d[r].why : j->error[r].message;
            if ((j->error[r].status == ATTN_OK) != (c->way != ATTN_WAY_AUTO)) fail_msg("%s: %s", c->name, j->error[r].message);
            if (!strstr(said, c->says)) fail_msg("%s: rank %d says: %s", c->name, r, said);
            assert_int_equal(j->d[r].way, c->way);
            assert_string_equal(j->d[r].why, j->d[0].why);
            assert_true(j->d[r].seconds == j->d[0].seconds);
        }
        if (!c->lost) assert_memory_equal(&j->got, &direct->got, sizeof j->got);
        if (c->way == ATTN_WAY_DIRECT) assert_true(j->d[0].seconds == direct->d[0].seconds);
        if (c->way == ATTN_WAY_HEADS) assert_true(j->d[0].seconds < direct->d[0].seconds);
        free(j), free(direct);
    }
}

/* Without a machine, predictions are those of the one that is described. */
static void test_machine(void **state)
{
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, HEADS, HEADS, LEN, LEN, D, D}};
    const attn_input later = {.data = ATTN_LATER};
    const attn_tensors t = {.struct_size = sizeof t, .q = later, .k = later, .v = later, .o.data = ATTN_LATER};
    attn_split_machine m = {.struct_size = sizeof m};
    (void)state;
    assert_int_equal(attn_split_machine_describe(NULL, NULL), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_split_machine_describe(&m, NULL), ATTN_OK);
    assert_true(m.flops_per_second == 5e12 && m.bytes_per_second == 25e9 && m.seconds_per_message == 5e-6 &&
                m.seconds_per_sum == 0.5e-9 / 32);
    const attn_split split = {.struct_size = sizeof split, .part = PART, .machine = &m},
                     none = {.struct_size = sizeof none, .part = PART};
    attn_split_prediction x[3] = {{.struct_size = sizeof *x}, {.struct_size = sizeof *x}, {.struct_size = sizeof *x}};
    assert_int_equal(attn_split_predict(&p, RANKS, &t, &none, NULL, &x[0], NULL), ATTN_OK);
    assert_int_equal(attn_split_predict(&p, RANKS, &t, &split, NULL, &x[1], NULL), ATTN_OK);
    assert_int_equal(attn_split_predict(&p, RANKS, &t, &split, &slow, &x[2], NULL), ATTN_OK);
    assert_true(x[0].seconds == x[1].seconds && x[2].seconds > x[1].seconds);
}

/* A time has the unit in which its three digits are below 1000. */
static void test_unit(void **state)
{
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, HEADS, HEADS, LEN, LEN, D, D}};
    const attn_input later = {.data = ATTN_LATER};
    const attn_tensors t = {.struct_size = sizeof t, .q = later, .k = later, .v = later, .o.data = ATTN_LATER};
    attn_split_machine m = fast;
    attn_split_prediction x = {.struct_size = sizeof x};
    (void)state;
    assert_int_equal(attn_split_predict(&p, 1, &t, NULL, &m, &x, NULL), ATTN_OK);
    m.flops_per_second = x.flops / 0.9998e-3;
    assert_int_equal(attn_split_predict(&p, 1, &t, NULL, &m, &x, NULL), ATTN_OK);
    assert_string_equal(x.why, "direct: there is one rank; 1 ms predicted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_machine), cmocka_unit_test(test_unit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
