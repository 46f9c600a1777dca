/* SPDX-License-Identifier: MIT
 *
 * test_model.c - attn_split_predict counts what plans of all ranks have: cells, messages and bytes; and its times are those of the
 * formula in distributed.h.  It is long because plans and formulas are about the same problems. */
#include "test.h"
#include "testing/ranks/ranks.h"

#include <math.h>

enum { MOST_PARTS = 64, HEADS = 6, HEADS_KV = 3, DIM = 8 };

static const attn_split_machine machine = {
    .struct_size = sizeof machine, .flops_per_second = 5e12, .bytes_per_second = 25e9, .seconds_per_message = 5e-6};

/* ---- against plans ---- */

typedef struct problem_case {
    const char *name;
    int64_t queries, keys;
    attn_mask mask;
    int has_sink, documents; /* has_sink -1: and no heads; documents -1: two entries, with offsets */
    attn_dtype dtype;
    int bias; /* 1: that all queries share, 2: all keys; of each head: 3, 4, 5: none; 6: all heads; with its gradient, but for 6 */
} problem_case;

static const int64_t offsets[] = {20, -40};

static const problem_case problems[] = {
    {"dense", 64, 48, {0}, 0, 0, ATTN_F32, 0},
    {"a short last part", 61, 43, {0}, 0, 0, ATTN_F32, 0},
    {"causal", 64, 64, {.causal = 1}, 0, 0, ATTN_F64, 0},
    {"causal, 16 bits, a sink", 61, 61, {.causal = 1}, 1, 0, ATTN_BF16, 0},
    {"bottom right", 30, 61, {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT}, 0, 0, ATTN_F32, 0},
    {"window", 64, 64, {.causal = 1, .window = 1, .window_left = 9, .window_right = 0}, 0, 0, ATTN_F32, 0},
    {"window both ways", 61, 64, {.window = 1, .window_left = 6, .window_right = 3}, 0, 0, ATTN_F32, 0},
    {"window and global keys",
     64,
     62,
     {.causal = 1, .window = 1, .window_left = 5, .window_right = 0, .global_kv = 6},
     0,
     0,
     ATTN_F32,
     0},
    {"window and global queries",
     64,
     62,
     {.window = 1, .window_left = 5, .window_right = 2, .global_q = 5, .global_kv = 3},
     0,
     0,
     ATTN_F32,
     0},
    {"chunks", 64, 64, {.chunk = 24}, 0, 0, ATTN_F32, 0},
    {"packed", 64, 64, {.causal = 1}, 0, 5, ATTN_F32, 0},
    {"packed, window", 64, 64, {.causal = 1, .window = 1, .window_left = 7, .window_right = 0}, 0, 5, ATTN_F32, 0},
    {"the mean of all", 61, 64, {.causal = 1, .window = 1, .window_left = 4, .empty = ATTN_EMPTY_UNIFORM}, 0, 0, ATTN_F32, 0},
    {"few queries", 3, 64, {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT}, 0, 0, ATTN_F32, 0},
    {"a bias of all queries", 61, 64, {.causal = 1}, 1, 0, ATTN_F32, 1},
    {"a bias of all keys", 64, 61, {.causal = 1}, 0, 0, ATTN_F64, 2},
    {"a bias of a head and all queries", 61, 43, {.causal = 1}, 0, 0, ATTN_F32, 3},
    {"a bias of a head and all keys", 61, 43, {0}, 0, 0, ATTN_F32, 4},
    {"a bias of each head", 61, 43, {.causal = 1}, 0, 0, ATTN_F32, 5},
    {"a bias of all heads", 61, 43, {0}, 0, 0, ATTN_F32, 6},
    {"no queries", 0, 64, {0}, 0, 0, ATTN_F32, 0},
    {"rows of a sink alone", 64, 20, {.causal = 1, .align = ATTN_ALIGN_BOTTOM_RIGHT}, 1, 0, ATTN_F32, 0},
    {"a later entry begins before", 64, 34, {.window = 1, .window_left = 3, .window_right = 0, .global_kv = 3}, 0, -1, ATTN_F32, 0},
    {"no keys, a sink", 16, 0, {0}, 1, 0, ATTN_F32, 0},
    {"no keys", 16, 0, {0}, 0, 0, ATTN_F32, 0},
    {"no heads, a sink", 61, 43, {.causal = 1}, -1, 0, ATTN_F32, 0},
};

static const int64_t starts[] = {0, 5, 6, 30, 31, 64};

typedef struct planned {
    const problem_case *of;
    attn_problem problem;
    attn_split split;
    attn_distributed_description d[MAX_RANKS];
    attn_error error[MAX_RANKS];
} planned;

static attn_problem problem_of(const problem_case *c, attn_op op)
{
    attn_problem p = {.struct_size = sizeof p,
                      .op = op,
                      .shape = {c->documents < 0 ? 2
                                : c->documents   ? c->documents
                                                 : 1,
                                HEADS, HEADS_KV, c->queries, c->keys, DIM, DIM},
                      .mask = c->mask};
    if (c->has_sink < 0) p.shape.heads_q = p.shape.heads_kv = 0;
    return p;
}

static attn_input slot(int64_t rows, attn_dtype dtype)
{
    return (attn_input){.data = rows ? ATTN_LATER : ATTN_EMPTY, .dtype = dtype};
}
static attn_output output(int64_t rows, attn_dtype dtype)
{
    return (attn_output){.data = rows ? ATTN_LATER : ATTN_EMPTY, .dtype = dtype};
}

/* Results of forward that take two runs, or all cells, in those of the problems that have a bias, a sink or packed sequences. */
static void add_outputs(const problem_case *c, int64_t queries, int64_t keys, attn_tensors *t)
{
    if (c->bias == 1 || c->bias == 3 || c->bias == 6) t->weights = output(queries, c->dtype);
    if (c->bias == 2 || c->bias == 3 || c->has_sink || c->documents > 0) t->column_sum = output(keys, ATTN_DTYPE_DEFAULT);
    if (c->bias == 4) t->scores = output(queries, c->dtype);
    if (c->bias == 5) t->dropout_keep = output(queries, ATTN_DTYPE_DEFAULT);
}

static attn_tensors tensors_of(const problem_case *c, attn_op op, int64_t queries, int64_t keys)
{
    const attn_dtype statistics = c->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    attn_tensors t = {.struct_size = sizeof t, .q = slot(queries, c->dtype), .k = slot(keys, c->dtype), .v = slot(keys, c->dtype)};
    if (c->has_sink) t.sink = slot(1, ATTN_F32);
    if (c->documents < 0) t.offset_q = (attn_input){.data = offsets, .dtype = ATTN_I64};
    if (c->bias && op != ATTN_JVP) {
        const int of_queries = c->bias == 1 || c->bias == 3, of_keys = c->bias == 2 || c->bias == 4;
        const int64_t wide = of_queries ? ATTN_BROADCAST : of_keys ? 1 : c->keys, next = of_keys ? ATTN_BROADCAST : 1;
        const int64_t head =
            c->bias < 3 || c->bias == 6 ? ATTN_BROADCAST : (of_queries ? 1 : (queries > 0 ? queries : 1)) * c->keys;
        t.bias = (attn_input){queries ? ATTN_LATER : ATTN_EMPTY, statistics, {ATTN_BROADCAST, head, wide, next}};
        if (op == ATTN_BACKWARD && c->bias < 6) t.grad_bias = output(of_queries ? 1 : queries, statistics);
        if (op == ATTN_DOUBLE_BACKWARD && c->bias < 6) t.second_bias = output(of_queries ? 1 : queries, statistics);
    }
    if (c->documents > 0) {
        t.cu_seqlens_q = t.cu_seqlens_kv = (attn_input){.data = starts, .dtype = ATTN_I64};
    }
    if (op == ATTN_FORWARD) t.o = output(queries, c->dtype);
    if (op == ATTN_FORWARD) add_outputs(c, queries, keys, &t);
    if (op == ATTN_BACKWARD) {
        t.o = output(queries, c->dtype), t.lse = output(queries, statistics);
        t.grad_o = slot(queries, c->dtype);
        t.grad_q = output(queries, c->dtype), t.grad_k = output(keys, c->dtype), t.grad_v = output(keys, c->dtype);
        if (c->bias == 1) t.grad_bias = output(queries, ATTN_F32);
        if (c->has_sink) t.grad_sink = output(1, ATTN_F32);
    }
    if (op == ATTN_JVP) {
        t.o = output(queries, c->dtype), t.lse = output(queries, statistics);
        t.tan_q = slot(queries, c->dtype), t.tan_k = slot(keys, c->dtype), t.tan_v = slot(keys, c->dtype);
        t.tan_o = output(queries, c->dtype);
    }
    if (op == ATTN_DOUBLE_BACKWARD) {
        t.o = output(queries, c->dtype), t.lse = output(queries, statistics);
        t.grad_o = slot(queries, c->dtype), t.tan_q = slot(queries, c->dtype), t.tan_k = slot(keys, c->dtype);
        t.second_grad_o = output(queries, c->dtype), t.second_q = output(queries, c->dtype);
        t.second_k = output(keys, c->dtype), t.second_v = output(keys, c->dtype);
    }
    return t;
}

static int64_t tokens_of(const planned *p, attn_axis axis, const attn_transport *t)
{
    attn_split_description d = {.struct_size = sizeof d};
    const int64_t tokens = axis == ATTN_AXIS_KEY ? p->of->keys : p->of->queries;
    if (attn_split_describe(&p->split, tokens, axis, t->rank, t->ranks, &d, NULL) != ATTN_OK) return -1;
    return d.tokens;
}

static void plan_on_rank(void *context, const attn_transport *t)
{
    planned *p = context;
    attn_distributed_plan *plan;
    const attn_tensors mine = tensors_of(p->of, p->problem.op, tokens_of(p, ATTN_AXIS_QUERY, t), tokens_of(p, ATTN_AXIS_KEY, t));
    attn_distributed_description *d = &p->d[t->rank];
    *d = (attn_distributed_description){.struct_size = sizeof *d};
    if (attn_distributed_plan_create(&plan, &p->problem, &mine, &p->split, t, NULL, &p->error[t->rank]) != ATTN_OK) return;
    (void)attn_distributed_describe(plan, d, NULL);
    attn_distributed_plan_destroy(plan);
}

#define SAME(field, expected)                                                                                                      \
    if (got.field != (expected))                                                                                                   \
    fail_msg("%s, op %d, layout %d, way %d, %d ranks, part %d: " #field " is %lld, and of plans %lld", c->name, (int)op,           \
             (int)split->layout, (int)split->way, ranks, (int)split->part, (long long)got.field, (long long)(expected))

/* Returns how many messages there are; -1: it is rejected, by both. */
static int64_t compare(const problem_case *c, attn_op op, const attn_split *split, int ranks)
{
    planned p = {.of = c, .problem = problem_of(c, op), .split = *split};
    attn_split_prediction got = {.struct_size = sizeof got};
    attn_error error;
    int64_t messages = 0, bytes = 0, messages_total = 0, bytes_total = 0, cells = 0;
    ranks_run(ranks, 0, plan_on_rank, &p);
    const attn_tensors whole = tensors_of(c, op, c->queries, c->keys);
    const attn_status status = attn_split_predict(&p.problem, ranks, &whole, split, NULL, &got, &error);
    if (status != p.error[0].status)
        fail_msg("%s: status %d, and of plans %d: %s; %s", c->name, (int)status, (int)p.error[0].status, error.message,
                 p.error[0].message);
    if (status != ATTN_OK) return -1;
    for (int r = 0; r < ranks; r++) {
        const attn_distributed_description *d = &p.d[r];
        if (d->messages > messages) messages = d->messages;
        if (d->bytes > bytes) bytes = d->bytes;
        messages_total += d->messages, bytes_total += d->bytes, cells += d->cells;
        if (d->cells && got.ranks_heads > 1 && r % got.ranks_heads >= p.problem.shape.heads_kv)
            fail_msg("%s: rank %d of %d has no head, and %d cells", c->name, r, ranks, (int)d->cells);
        if (d->seconds != got.seconds || strcmp(d->why, got.why) != 0)
            fail_msg("%s: %g s are predicted (%s), and by rank %d %g (%s)", c->name, got.seconds, got.why, r, d->seconds, d->why);
    }
    SAME(cells_total, p.d[0].cells_total);
    SAME(cells_total, cells);
    SAME(cells_most, p.d[0].cells_most);
    SAME(parts_q, p.d[0].parts_q);
    SAME(parts_kv, p.d[0].parts_kv);
    SAME(way, p.d[0].way);
    SAME(ranks_heads, p.d[0].ranks_heads);
    SAME(messages_total, messages_total);
    SAME(bytes_total, bytes_total);
    SAME(messages, messages);
    SAME(bytes, bytes);
    assert_true(got.sampled == 1);
    return messages_total;
}

static void test_plans(void **state)
{
    static const int ranks[] = {1, 2, 3, 5, 8, 16};
    static const attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    static const int64_t parts[] = {4, 7};
    static int32_t owners[2][MOST_PARTS];
    int64_t cases = 0, rejected = 0, messages = 0, number = 0;
    (void)state;
    for (size_t n = 0; n < sizeof problems / sizeof *problems; n++)
        for (int k = 0; k < 6; k++)
            for (int layout = 0; layout <= ATTN_LAYOUT_OWNERS; layout++)
                for (int way = 0; way <= ATTN_WAY_GATHER; way++)
                    for (int op = 0; op < 4; op++) {
                        if (way == ATTN_WAY_SPLIT_KEYS && ops[op] != ATTN_FORWARD) continue;
                        if ((n + (size_t)(k + layout + way + op)) % 2 || number++ % EVERY(1)) continue; /* half of them */
                        attn_split split = {.struct_size = sizeof split,
                                            .part = parts[(n + (size_t)k) % 2],
                                            .layout = (attn_layout)layout,
                                            .way = (attn_way)way,
                                            .any_order = (op + k + (int)n / 2) % 3 == 0,
                                            .machine = n % 3 ? &machine : NULL};
                        for (int x = 0; x < MOST_PARTS; x++)
                            owners[0][x] = (x * x + 3) % ranks[k], owners[1][x] = (x * 5 + x / 3) % ranks[k];
                        if (way == ATTN_WAY_HEADS_RING && n % 3) split.ranks_heads = ranks[k] % 2 || n % 3 == 1 ? ranks[k] : 2;
                        if (layout == ATTN_LAYOUT_OWNERS) split.owners_q = owners[0], split.owners_kv = owners[1];
                        const int64_t sent = compare(&problems[n], ops[op], &split, ranks[k]);
                        rejected += sent < 0;
                        messages += sent < 0 ? 0 : sent;
                        cases++;
                    }
    print_message("%d cases, %d rejected, %d messages\n", (int)cases, (int)rejected, (int)messages);
    assert_true(rejected < cases / 5);
}

/* ---- time ---- */

static attn_split_prediction predict(const problem_case *c, attn_op op, const attn_split *split, int ranks, attn_split_machine m)
{
    attn_split_prediction got = {.struct_size = sizeof got};
    const attn_problem p = problem_of(c, op);
    const attn_tensors t = tensors_of(c, op, c->queries, c->keys);
    attn_error error;
    if (attn_split_predict(&p, ranks, &t, split, &m, &got, &error) != ATTN_OK) fail_msg("%s: %s", c->name, error.message);
    return got;
}

static void near(double got, double expected) { assert_true(fabs(got - expected) <= 1e-12 * fabs(expected)); }

/* The formula, written out for an even ring: all ranks have the same queries and keys, and all see all. */
static void test_ring(void **state)
{
    enum { RANKS = 8, TOKENS = 1024 };
    const problem_case c = {"dense", TOKENS, TOKENS, {0}, 0, 0, ATTN_BF16, 0};
    const attn_split split = {.struct_size = sizeof split, .part = TOKENS / RANKS, .way = ATTN_WAY_RING};
    (void)state;
    for (int slow = 0; slow < 2; slow++) { /* messages are hidden, and are not */
        attn_split_machine m = machine;
        m.bytes_per_second = slow ? 1e6 : 1e12;
        m.seconds_per_message = slow ? 5e-6 : 1e-12;
        m.seconds_per_sum = 1e-9;
        const attn_split_prediction got = predict(&c, ATTN_FORWARD, &split, RANKS, m);
        const double flops = 4.0 * HEADS * DIM * TOKENS * TOKENS, tokens = TOKENS / RANKS,
                     numbers = HEADS * tokens * (DIM + 1) * RANKS, work = flops / RANKS / m.flops_per_second + numbers * 1e-9,
                     message = m.seconds_per_message + 2 * HEADS_KV * tokens * DIM * 2 / m.bytes_per_second;
        near(got.flops, flops);
        near(got.imbalance, 1);
        near(got.computing + got.combining, work);
        near(got.seconds, work / RANKS + (RANKS - 1) * fmax(work / RANKS, message));
        near(got.efficiency, flops / RANKS / m.flops_per_second / got.seconds);
        assert_int_equal(got.steps, RANKS - 1);
        assert_true(slow ? got.waiting > 0 : got.waiting == 0);
    }
}

/* Double backward is forward mode, which sends no sums, and then cells that send as many as backward's. */
static void test_two_runs(void **state)
{
    enum { RANKS = 8, TOKENS = 1024 };
    const problem_case c = {"dense", TOKENS, TOKENS, {0}, 0, 0, ATTN_F32, 0};
    const attn_split split = {.struct_size = sizeof split, .part = TOKENS / RANKS, .way = ATTN_WAY_RING};
    attn_split_machine m = machine;
    (void)state;
    m.bytes_per_second = 1e6, m.seconds_per_sum = 1e-9;
    const attn_split_prediction got = predict(&c, ATTN_DOUBLE_BACKWARD, &split, RANKS, m);
    const double pairs = (double)HEADS * TOKENS * TOKENS, tokens = TOKENS / RANKS, keys = 3 * HEADS_KV * tokens * DIM * 4,
                 sums = 2 * HEADS_KV * tokens * DIM * 4, rows = HEADS * tokens * (DIM + 1), queries = HEADS * tokens * DIM;
    near(got.flops, 2 * (7 + 5) * DIM * pairs);
    near(got.combining, RANKS * (rows + queries + sums / 4) * m.seconds_per_sum);
    near(got.computing, got.flops / RANKS / m.flops_per_second);
    const double works[] = {2 * 5 * DIM * pairs / RANKS / m.flops_per_second + RANKS * rows * m.seconds_per_sum,
                            2 * 7 * DIM * pairs / RANKS / m.flops_per_second + RANKS * (queries + sums / 4) * m.seconds_per_sum};
    double seconds = (RANKS - 1) * (m.seconds_per_message + sums / m.bytes_per_second);
    for (int run = 0; run < 2; run++)
        seconds += works[run] / RANKS + (RANKS - 1) * fmax(works[run] / RANKS, m.seconds_per_message + keys / m.bytes_per_second);
    near(got.seconds, seconds);
}

static double to_64(double bytes) { return ceil(bytes / 64) * 64; }

/* Heads that divide evenly, of all tokens: rows go before and come back after. */
static void test_heads(void **state)
{
    enum { RANKS = HEADS_KV, OWN = 342, TOKENS = OWN * RANKS };
    const problem_case c = {"dense", TOKENS, TOKENS, {0}, 0, 0, ATTN_BF16, 0};
    const attn_split split = {.struct_size = sizeof split, .part = OWN, .way = ATTN_WAY_HEADS};
    const attn_split_prediction got = predict(&c, ATTN_FORWARD, &split, RANKS, machine);
    const double head = OWN * DIM * 2, q = HEADS / RANKS * head, before = to_64(q) + 2 * to_64(head), after = to_64(q),
                 work = 4.0 * HEADS * DIM * TOKENS * TOKENS / RANKS / machine.flops_per_second;
    (void)state;
    assert_int_equal(got.ranks_heads, RANKS);
    assert_int_equal(got.steps, 0);
    near(got.computing, work);
    near(got.imbalance, 1);
    near(got.waiting, 2 * (RANKS - 1) * machine.seconds_per_message + (RANKS - 1) * (before + after) / machine.bytes_per_second);
    near(got.efficiency, work / got.seconds);
    near((double)got.key_bytes, RANKS * 2 * to_64(head));
}

/* One head after another: the keys of the first are waited for, and sums of each. */
static void test_gather(void **state)
{
    enum { RANKS = 8, OWN = 128, TOKENS = OWN * RANKS };
    const problem_case c = {"dense", TOKENS, TOKENS, {0}, 0, 0, ATTN_F32, 0};
    const attn_split split = {.struct_size = sizeof split, .part = OWN, .way = ATTN_WAY_GATHER};
    (void)state;
    for (int n = 0; n < 4; n++) { /* messages are hidden, and are not */
        const int slow = n & 1;
        const attn_op op = n & 2 ? ATTN_BACKWARD : ATTN_FORWARD;
        attn_split_machine m = machine;
        m.bytes_per_second = slow ? 1e6 : 1e12, m.seconds_per_message = slow ? 5e-6 : 1e-12, m.seconds_per_sum = 1e-9;
        const attn_split_prediction got = predict(&c, op, &split, RANKS, m);
        const double part = 2 * OWN * DIM * 4, pairs = (double)HEADS * TOKENS * TOKENS,
                     numbers = op == ATTN_FORWARD ? HEADS * OWN * (DIM + 1) : HEADS * OWN * DIM + HEADS_KV * 2 * OWN * DIM,
                     work = (op == ATTN_FORWARD ? 4 : 10) * DIM * pairs / RANKS / m.flops_per_second + RANKS * numbers * 1e-9,
                     message = m.seconds_per_message + (RANKS - 1) * part / m.bytes_per_second,
                     sums = op == ATTN_FORWARD ? 0 : HEADS_KV * message;
        near(got.computing + got.combining, work);
        near(got.waiting, message + (HEADS_KV - 1) * fmax(message - work / HEADS_KV, 0) + sums);
        near((double)got.key_bytes, part + 2 * (RANKS - 1) * part);
        assert_int_equal(got.steps, RANKS - 1);
        assert_true(got.cells_most == HEADS_KV * RANKS);
    }
}

/* Pairs, with all of them counted one by one. */
static void test_work(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof problems / sizeof *problems; n++) {
        const problem_case *c = &problems[n];
        const attn_split split = {.struct_size = sizeof split, .part = 8};
        if (c->documents || c->mask.window || c->mask.chunk || !c->keys || c->has_sink < 0) continue;
        double pairs = 0;
        for (int64_t i = 0; i < c->queries; i++) {
            const int64_t position = i + (c->mask.align == ATTN_ALIGN_BOTTOM_RIGHT ? c->keys - c->queries : 0);
            pairs += c->mask.causal ? fmin(fmax((double)position + 1, 0), (double)c->keys) : (double)c->keys;
        }
        const attn_tensors t = tensors_of(c, ATTN_FORWARD, c->queries, c->keys);
        const int products = t.weights.data || t.column_sum.data ? 3 : 2; /* scores again, in a second run */
        near(predict(c, ATTN_FORWARD, &split, 4, machine).flops, pairs * HEADS * 2 * products * DIM);
        near(predict(c, ATTN_BACKWARD, &split, 4, machine).flops, 2.5 * pairs * HEADS * 4 * DIM);
    }
}

/* The same as a caller can find out, way after way; *best: what takes the least. */
static int64_t list_ways(const problem_case *c, attn_op op, attn_split split, int ranks, attn_split_prediction *best)
{
    const attn_problem p = problem_of(c, op);
    const attn_tensors t = tensors_of(c, op, c->queries, c->keys);
    int64_t ways = 0;
    for (int64_t n = 1; n <= ranks + (ranks > 1); n++) { /* n ranks divide the heads; the last: ATTN_WAY_GATHER */
        attn_split_prediction x = {.struct_size = sizeof x};
        split.way = n == 1 ? ATTN_WAY_DIRECT : n == ranks ? ATTN_WAY_HEADS : n < ranks ? ATTN_WAY_HEADS_RING : ATTN_WAY_GATHER;
        split.ranks_heads = n == 1 || n > ranks ? 0 : n;
        if (n > 1 && n <= ranks && (ranks % n || n > p.shape.heads_kv)) continue;
        const attn_status status = attn_split_predict(&p, ranks, &t, &split, NULL, &x, NULL);
        if (n > 1 && status == ATTN_ERR_UNSUPPORTED) continue; /* gradients that all heads share */
        assert_int_equal(status, ATTN_OK);
        if (!ways++ || x.seconds < best->seconds || (x.seconds == best->seconds && x.way < best->way)) *best = x;
    }
    return ways;
}

/* What ATTN_WAY_AUTO takes is what takes the least; direct if nothing takes less. */
static void test_auto(void **state)
{
    static const double rates[] = {1e5, 1e7, 1e12}; /* bytes a second */
    int taken[ATTN_WAY_GATHER + 1] = {0}, alone = 0;
    (void)state;
    for (size_t n = 0; n < sizeof problems / sizeof *problems; n++)
        for (int ranks = 1; ranks < 20; ranks++)
            for (int x = 0; x < 6; x++) {
                attn_split_machine m = machine;
                attn_split split = {.struct_size = sizeof split, .part = 3, .machine = &m};
                attn_split_prediction best = {.seconds = 0};
                const attn_op op = x % 2 ? ATTN_BACKWARD : ATTN_FORWARD;
                split.layout = (attn_layout)((n + (size_t)(ranks + x)) % ATTN_LAYOUT_OWNERS);
                m.bytes_per_second = rates[x / 2], m.seconds_per_message = x / 2 == 1 ? 0 : 1e-7;
                alone += list_ways(&problems[n], op, split, ranks, &best) == 1;
                const attn_split_prediction got = predict(&problems[n], op, &split, ranks, m);
                if (got.way != best.way || got.ranks_heads != best.ranks_heads || got.seconds != best.seconds)
                    fail_msg("%s, op %d, %d ranks: way %d by %d takes %g s; auto is %d by %d, which takes %g", problems[n].name,
                             (int)op, ranks, (int)best.way, (int)best.ranks_heads, best.seconds, (int)got.way, (int)got.ranks_heads,
                             got.seconds);
                split.way = ATTN_WAY_RING;
                const double ring = predict(&problems[n], op, &split, ranks, machine).seconds;
                split.way = ATTN_WAY_AUTO;
                const double fast = predict(&problems[n], op, &split, ranks, machine).seconds;
                if (fast > ring * (1 + 1e-12)) fail_msg("%s: %g s, and by the ring %g", problems[n].name, fast, ring);
                taken[got.way]++;
            }
    print_message("direct %d (%d: there is nothing else), heads %d, heads x ring %d, gather %d\n", taken[ATTN_WAY_DIRECT], alone,
                  taken[ATTN_WAY_HEADS], taken[ATTN_WAY_HEADS_RING], taken[ATTN_WAY_GATHER]);
    assert_true(taken[ATTN_WAY_DIRECT] > alone + 50 && taken[ATTN_WAY_HEADS] > 50 && taken[ATTN_WAY_HEADS_RING] > 50 &&
                taken[ATTN_WAY_GATHER] > 50);
}

/* Sentences for people. */
static void test_why(void **state)
{
    static const attn_split_machine slow = {sizeof slow, 5e12, 1e5, 5e-6, 0, {0}};
    static const struct {
        int problem, ranks;
        attn_op op;
        attn_way way;
        const attn_split_machine *machine;
        const char *why;
    } cases[] = {
        {0, 1, ATTN_FORWARD, ATTN_WAY_AUTO, NULL, "direct: there is one rank; 790 ns predicted"},
        {0, 8, ATTN_FORWARD, ATTN_WAY_AUTO, &slow, "heads-ring by 2: 66.6 ms predicted, direct 84.5 ms (waiting 84.5 ms)"},
        {0, 3, ATTN_BACKWARD, ATTN_WAY_AUTO, &slow,
         "heads: 163 ms predicted, direct 246 ms (waiting 246 ms; work is 1.12 times even)"},
        {0, 4, ATTN_FORWARD, ATTN_WAY_AUTO, &slow, "direct: 69.1 ms predicted, gather 69.1 ms"},
        {0, 5, ATTN_FORWARD, ATTN_WAY_AUTO, &slow,
         "gather: 76.8 ms predicted, direct 76.8 ms (waiting 76.8 ms; work is 1.25 times even)"},
        {15, 4, ATTN_BACKWARD, ATTN_WAY_AUTO, &slow, "direct: all heads share what is summed; 369 ms predicted"},
        {0, 4, ATTN_FORWARD, ATTN_WAY_HEADS_RING, &slow, "heads-ring by 2: asked for; 76.8 ms predicted"},
    };
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const problem_case *c = &problems[cases[n].problem];
        attn_split split = {.struct_size = sizeof split, .part = 4, .way = cases[n].way, .machine = cases[n].machine};
        attn_split_prediction got = {.struct_size = sizeof got};
        const attn_problem p = problem_of(c, cases[n].op);
        const attn_tensors t = tensors_of(c, cases[n].op, c->queries, c->keys);
        if (cases[n].way == ATTN_WAY_HEADS_RING) split.ranks_heads = 2;
        assert_int_equal(attn_split_predict(&p, cases[n].ranks, &t, &split, NULL, &got, NULL), ATTN_OK);
        assert_string_equal(got.why, cases[n].why);
    }
}

/* A billion tokens on 16384 ranks: no cell is planned. */
static void test_large(void **state)
{
    const problem_case c = {"a billion", INT64_C(1) << 30, INT64_C(1) << 30, {.causal = 1}, 0, 0, ATTN_BF16, 0};
    const attn_split split = {.struct_size = sizeof split, .layout = ATTN_LAYOUT_ZIGZAG};
    (void)state;
    const attn_split_prediction forward = predict(&c, ATTN_FORWARD, &split, 16384, machine),
                                backward = predict(&c, ATTN_BACKWARD, &split, 16384, machine);
    const int64_t parts = INT64_C(1) << 20;
    assert_true(forward.cells_total == parts * (parts + 1) / 2);
    near(forward.flops, 4.0 * HEADS * DIM * 0x1p29 * (0x1p30 + 1));
    assert_true(forward.sampled == 1 && backward.sampled < 1);
    assert_true(forward.imbalance < 1.001);
    assert_true(backward.bytes > forward.bytes);
}

/* More ranks than a part of queries can be searched for: one is sampled at least, and work is not what the sample says. */
static void test_many_ranks(void **state)
{
    const problem_case c = {"decode", 1, 4096, {0}, 0, 0, ATTN_F32, 0};
    const attn_split split = {.struct_size = sizeof split, .way = ATTN_WAY_SPLIT_KEYS, .part = 4096};
    (void)state;
    const attn_split_prediction few = predict(&c, ATTN_FORWARD, &split, 2, machine),
                                many = predict(&c, ATTN_FORWARD, &split, 1 << 22, machine);
    assert_true(few.flops > 0 && many.flops == few.flops && many.computing == few.computing);
    assert_int_equal(many.cells_total, 1);
}

/* One query over many ranks: in each round a rank sends one message, of half of the heads that it still has, and in the reverse
 * order what it has of the complete ones; with one head, it is a tree.  (Beside that, ranks agree twice.) */
static void test_decode(void **state)
{
    static const struct {
        int ranks;
        int64_t heads, messages, units; /* of the rank that sends the most */
    } cases[] = {{1024, 1024, 20, 2 * 1023}, {1024, 32, 15, 2 * 31 + 5}, {1024, 1, 10, 10}, {3, 8, 3, 8 + 4 + 4}, {2, 5, 2, 5}};
    (void)state;
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        attn_split_prediction got[2];
        int agreements = 0;
        for (int distance = 1; distance < cases[n].ranks; distance *= 2) agreements += 2;
        for (int wide = 0; wide < 2; wide++) {
            const int64_t keys = 4 * (int64_t)cases[n].ranks;
            const problem_case c = {"decode", 1, keys, {0}, 0, 0, ATTN_F32, 0};
            const attn_split split = {.struct_size = sizeof split, .way = ATTN_WAY_SPLIT_KEYS, .part = 4};
            const attn_tensors t = tensors_of(&c, ATTN_FORWARD, 1, keys);
            attn_problem p = problem_of(&c, ATTN_FORWARD);
            attn_error error;
            p.shape.heads_q = p.shape.heads_kv = cases[n].heads, p.shape.batch = 1, p.shape.dim_v = wide ? 32 : 16;
            got[wide].struct_size = sizeof *got;
            if (attn_split_predict(&p, cases[n].ranks, &t, &split, &machine, &got[wide], &error) != ATTN_OK)
                fail_msg("%s", error.message);
            assert_int_equal(got[wide].messages, cases[n].messages + agreements);
        }
        assert_int_equal(got[1].bytes - got[0].bytes, cases[n].units * 16 * 4);
        assert_true(got[0].waiting >= (double)cases[n].messages * machine.seconds_per_message);
    }
}

/* Entries without lengths or offsets are alike: one is looked at, and all are computed. */
static void test_alike(void **state)
{
    const problem_case c = {"alike", 64, 64, {.causal = 1}, 0, 0, ATTN_F32, 0};
    const attn_split split = {.struct_size = sizeof split, .part = 16};
    const attn_tensors t = tensors_of(&c, ATTN_FORWARD, 64, 64);
    attn_problem p = problem_of(&c, ATTN_FORWARD);
    attn_split_prediction got[2];
    (void)state;
    for (int many = 0; many < 2; many++) {
        p.shape.batch = many ? INT64_C(1) << 22 : 1;
        got[many].struct_size = sizeof *got;
        assert_int_equal(attn_split_predict(&p, 4, &t, &split, &machine, &got[many], NULL), ATTN_OK);
    }
    near(got[1].flops, 0x1p22 * got[0].flops);
    near(got[1].computing, 0x1p22 * got[0].computing);
    assert_int_equal(got[1].cells_total, got[0].cells_total);
}

static void test_rejects(void **state)
{
    const attn_problem p = problem_of(&problems[0], ATTN_FORWARD);
    const attn_tensors t = tensors_of(&problems[0], ATTN_FORWARD, 64, 48);
    attn_split_prediction d = {.struct_size = sizeof d, .seconds = -7};
    attn_error error;
    const struct {
        const char *message;
        attn_split_machine machine;
    } wrong[] = {{"machine.flops_per_second is 0; it must be above 0", {sizeof machine, 0, 1, 0, 0, {0}}},
                 {"machine.bytes_per_second is nan; it must be above 0", {sizeof machine, 1, NAN, 0, 0, {0}}},
                 {"machine.seconds_per_message is -1; it must be at least 0", {sizeof machine, 1, 1, -1, 0, {0}}},
                 {"machine.seconds_per_sum is inf; it must be at least 0", {sizeof machine, 1, 1, 0, INFINITY, {0}}},
                 {"machine is too slow: 1e-305 operations and 1 bytes a second, 0 seconds a message; its seconds overflow",
                  {sizeof machine, 1e-305, 1, 0, 0, {0}}},
                 {"machine.reserved[2] is 5; it must be 0", {sizeof machine, 1, 1, 0, 0, {0, 0, 5, 0}}}};
    (void)state;
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        assert_int_equal(attn_split_predict(&p, 2, &t, NULL, &wrong[n].machine, &d, &error), ATTN_ERR_ARGUMENT);
        assert_string_equal(error.message, wrong[n].message);
    }
    const attn_call call = {.struct_size = sizeof call, .reserved = 1};
    attn_tensors called = t;
    called.call = &call;
    assert_int_equal(attn_split_predict(&p, 2, &called, NULL, &machine, &d, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "call.reserved is 1; it must be 0");
    assert_int_equal(attn_split_predict(NULL, 2, &t, NULL, &machine, &d, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_split_predict(&p, 2, NULL, NULL, &machine, &d, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_split_predict(&p, 0, &t, NULL, &machine, &d, &error), ATTN_ERR_ARGUMENT);
    const attn_split split = {.struct_size = sizeof split, .machine = &wrong[0].machine};
    assert_int_equal(attn_split_predict(&p, 2, &t, &split, NULL, &d, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_split_predict(&p, 2, &t, NULL, &machine, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_true(d.seconds == -7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),      cmocka_unit_test(test_ring),   cmocka_unit_test(test_two_runs),
        cmocka_unit_test(test_work),       cmocka_unit_test(test_heads),  cmocka_unit_test(test_gather),
        cmocka_unit_test(test_auto),       cmocka_unit_test(test_why),    cmocka_unit_test(test_large),
        cmocka_unit_test(test_many_ranks), cmocka_unit_test(test_decode), cmocka_unit_test(test_alike),
        cmocka_unit_test(test_rejects)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
