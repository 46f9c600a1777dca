/* SPDX-License-Identifier: MIT
 *
 * test_split_keys.c - ATTN_WAY_SPLIT_KEYS, where each rank has all queries and its own keys: every rank gets all results, with the
 * bits of one rank, whatever the owners of keys; and what this way does not have. */
#include "spread.h"

#include "testing/random/share.h"
#include "testing/ranks/ranks.h"

enum { SEEDS = CASES(160), MOST_PARTS = 512 };

typedef struct job {
    const spread *s;
    const spread_way *way;
    spread out[MAX_RANKS];
    attn_error error[MAX_RANKS];
} job;

static void on_rank(void *context, const attn_transport *transport)
{
    job *j = context;
    const int r = transport->rank;
    spread_run_rank(j->s, j->way, transport, &j->out[r], &j->error[r]);
}

static int is_of_keys(const spread_tensor *x) { return x->role == ATTN_ROLE_OUTPUT && x->about.axes[2] == ATTN_AXIS_KEY; }

/* Sums of which a rank has those of its own keys: all ranks write theirs into one tensor. */
static void share_keys(job *j, int r)
{
    for (int n = 0; n < j->out[r].count && r > 0; n++) {
        if (!is_of_keys(&j->out[r].all[n])) continue;
        free(j->out[r].all[n].data);
        j->out[r].all[n].data = j->out[0].all[n].data;
    }
}

static void free_of_rank(job *j, int r)
{
    for (int n = 0; n < j->out[r].count && r > 0; n++)
        if (is_of_keys(&j->out[r].all[n])) j->out[r].all[n].data = NULL;
    spread_free(&j->out[r]);
}

static void check_ranks(const whole *w, const spread *all, const spread *one, spread_way way)
{
    static job j;
    j = (job){.s = all, .way = &way};
    way.sent = ranks_sent;
    for (int r = 0; r < way.ranks; r++) spread_output(all, &j.out[r]), share_keys(&j, r);
    ranks_run(way.ranks, way.delays, on_rank, &j);
    for (int r = 0; r < way.ranks; r++) {
        if (j.error[r].status != ATTN_OK) fail_msg("%s, rank %d of %d: %s", w->text, r, way.ranks, j.error[r].message);
        if (!spread_same(way.split.any_order ? &j.out[0] : one, &j.out[r]))
            fail_msg("%s: other bits on rank %d of %d, part %d, layout %d", w->text, r, way.ranks, (int)way.split.part,
                     (int)way.split.layout);
        if (way.split.any_order) (void)spread_compare(all, &j.out[r], one->all[0].dtype == ATTN_F64 ? 1e-13 : 2e-5);
    }
    for (int r = 0; r < way.ranks; r++) free_of_rank(&j, r);
}

/* Returns 1 if the problem could be computed. */
static int check(uint64_t seed, attn_dtype dtype, int kinds)
{
    static const int ranks[] = {1, 2, 3, 5, 8};
    static int32_t owners[MOST_PARTS];
    static whole w;
    spread_more more;
    const int64_t tokens = spread_draw(&w, &more, seed, dtype, kinds);
    const int ran = tokens > 0 && spread_has(&w, &more, ATTN_FORWARD);
    if (ran) {
        spread all, one;
        spread_way way = {.ranks = 1, .split = {.struct_size = sizeof way.split, .part = tokens}};
        spread_make(&all, &w, &more, ATTN_FORWARD, NULL);
        spread_run(&all, &way, &one);
        way.ranks = ranks[random_below(&w.random, 5)];
        way.split.layout = (attn_layout)random_below(&w.random, ATTN_LAYOUT_OWNERS + 1);
        way.split.way = ATTN_WAY_SPLIT_KEYS;
        for (int k = 0; k < MOST_PARTS; k++) owners[k] = (int32_t)random_below(&w.random, way.ranks);
        if (way.split.layout == ATTN_LAYOUT_OWNERS) way.split.owners_kv = owners;
        way.threads = 1 + (int)random_below(&w.random, 3);
        way.delays = random_below(&w.random, 2) ? 1 + seed : 0;
        check_ranks(&w, &all, &one, way);
        way.split.any_order = 1; /* near one call, and the same on all ranks */
        check_ranks(&w, &all, &one, way);
        spread_free(&one), spread_free(&all);
    }
    spread_more_free(&more);
    whole_free(&w);
    return ran;
}

static void test_same_bits(void **state)
{
    int ran = 0;
    (void)state;
    for (int kind = 0; kind < 4; kind++)
        for (int64_t seed = 0; seed < share_of_cases((kind / 2 ? 3 : 1) * SEEDS); seed++)
            ran += check((uint64_t)seed + 5000, kind & 1 ? ATTN_F64 : ATTN_F32,
                         (kind / 2 ? SPREAD_PACKED : 0) | (seed & 1 ? SPREAD_OUTPUTS | SPREAD_COLUMNS : 0) |
                             (seed % 5 ? 0 : SPREAD_UNIFORM) | (seed % 7 ? 0 : SPREAD_EMPTY));
    print_message("%d problems\n", ran);
    assert_true(ran > share_of_cases(SEEDS) / 2);
}

/* A rank has all queries, and what it has of the keys does not depend on the way. */
static void test_describe(void **state)
{
    attn_split split = {.struct_size = sizeof split, .part = 4, .layout = ATTN_LAYOUT_STRIPED, .way = ATTN_WAY_SPLIT_KEYS};
    attn_split_description d = {.struct_size = sizeof d};
    attn_split_part last = {.struct_size = sizeof last};
    attn_error error;
    (void)state;
    assert_int_equal(attn_split_describe(&split, 10, ATTN_AXIS_QUERY, 1, 2, &d, NULL), ATTN_OK);
    assert_int_equal(d.parts, 3), assert_int_equal(d.tokens, 10);
    assert_int_equal(attn_split_part_describe(&split, 10, ATTN_AXIS_QUERY, 1, 2, 2, &last, NULL), ATTN_OK);
    assert_int_equal(last.first, 8), assert_int_equal(last.tokens, 2), assert_int_equal(last.local, 8);
    assert_int_equal(attn_split_describe(&split, 10, ATTN_AXIS_KEY, 1, 2, &d, NULL), ATTN_OK);
    assert_int_equal(d.parts, 1), assert_int_equal(d.tokens, 4);
    const attn_problem p = {.struct_size = sizeof p, .op = ATTN_BACKWARD, .shape = {1, 1, 1, 4, 8, 2, 2}};
    const attn_tensors t = {.struct_size = sizeof t};
    attn_distributed_plan *plan;
    assert_int_equal(attn_distributed_plan_create(&plan, &p, &t, &split, NULL, NULL, &error), ATTN_ERR_UNSUPPORTED);
    assert_string_equal(error.message, "distributed: split.way is 3 (split keys); it is for ATTN_FORWARD, and op is 1");
}

/* No rank has a whole row. */
static void test_pairs(void **state)
{
    const attn_split split = {.struct_size = sizeof split, .way = ATTN_WAY_SPLIT_KEYS};
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 4, 8, 2, 2}};
    const attn_input in = attn_in(ATTN_LATER);
    const attn_output out = attn_out(ATTN_LATER);
    const struct {
        const char *name;
        size_t offset;
    } all[] = {{"weights", offsetof(attn_tensors, weights)},
               {"scores", offsetof(attn_tensors, scores)},
               {"dropout_keep", offsetof(attn_tensors, dropout_keep)}};
    attn_distributed_plan *plan;
    attn_error error;
    (void)state;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        attn_tensors t = {.struct_size = sizeof t, .q = in, .k = in, .v = in, .o = out};
        char expected[200];
        memcpy((char *)&t + all[n].offset, &out, sizeof out);
        assert_int_equal(attn_distributed_plan_create(&plan, &p, &t, &split, NULL, NULL, &error), ATTN_ERR_UNSUPPORTED);
        (void)snprintf(expected, sizeof expected,
                       "distributed: %s is set and split.way is 3 (split keys); a rank has its own keys alone, and not whole rows",
                       all[n].name);
        assert_string_equal(error.message, expected);
    }
}

/* ---- when something is wrong ---- */

enum { QUERIES = 3, KEYS = 10, HEADS = 3, UNTOUCHED = 7 };

typedef struct broken {
    int without_o; /* a rank that passes no o in an execution; -1: none */
    attn_error error[MAX_RANKS];
    int written[MAX_RANKS];
} broken;

static void on_broken_rank(void *context, const attn_transport *transport)
{
    static const float in[HEADS * KEYS];
    broken *x = context;
    attn_error *error = &x->error[transport->rank];
    float o[HEADS * QUERIES], column[HEADS * KEYS];
    attn_distributed_plan *plan;
    const attn_split split = {.struct_size = sizeof split, .part = 1, .way = ATTN_WAY_SPLIT_KEYS};
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, HEADS, HEADS, QUERIES, KEYS, 1, 1}};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(in), .k = attn_in(in), .v = attn_in(in), .o = attn_out(o)};
    t.column_sum = attn_out(column);
    for (int n = 0; n < HEADS * QUERIES; n++) o[n] = UNTOUCHED;
    for (int n = 0; n < HEADS * KEYS; n++) column[n] = UNTOUCHED;
    if (attn_distributed_plan_create(&plan, &p, &t, &split, transport, NULL, error) != ATTN_OK) return;
    const size_t size = attn_distributed_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    if (transport->rank == x->without_o) t.o.data = NULL;
    (void)attn_distributed_execute(plan, &t, workspace, size, error);
    x->written[transport->rank] = o[0] != UNTOUCHED || column[0] != UNTOUCHED;
    free(workspace);
    attn_distributed_plan_destroy(plan);
}

/* Each call of a transport's function fails in turn: with pairs of ranks (3, 5) and without, with heads for all ranks or not. */
static void test_messages(void **state)
{
    static const int ranks[] = {2, 3, 5};
    (void)state;
    for (int k = 0; k < 3; k++) {
        int64_t n = 0;
        for (int failed = 1; failed; n++) {
            broken x = {.without_o = -1};
            ranks_fail_at(n);
            ranks_run(ranks[k], 0, on_broken_rank, &x);
            if (ranks_wrong()) fail_msg("%d ranks, call %d: %s", ranks[k], (int)n, ranks_wrong());
            failed = 0;
            for (int r = 0; r < ranks[k]; r++) {
                failed += x.error[r].status != ATTN_OK;
                if (x.error[r].status != ATTN_OK) assert_int_equal(x.error[r].status, ATTN_ERR_IO);
            }
        }
        ranks_fail_at(-1);
        assert_in_range(n, 50 * ranks[k] - 60, 1000);
    }
}

static void test_one_rank(void **state)
{
    (void)state;
    for (int who = 0; who < 3; who++) {
        broken x = {.without_o = who};
        ranks_run(3, 0, on_broken_rank, &x);
        for (int r = 0; r < 3; r++) {
            assert_int_equal(x.error[r].status, ATTN_ERR_ARGUMENT);
            assert_string_equal(x.error[r].message, "distributed: o is missing; the plan was made with it");
            assert_false(x.written[r]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits), cmocka_unit_test(test_describe),
                                       cmocka_unit_test(test_pairs), cmocka_unit_test(test_messages),
                                       cmocka_unit_test(test_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
