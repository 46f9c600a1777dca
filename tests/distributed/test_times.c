/* SPDX-License-Identifier: MIT
 *
 * test_times.c - the seconds of attn_split_predict are those of the formula in distributed.h, the way that ATTN_WAY_AUTO takes has
 * the fewest, and what cannot be predicted is rejected.  (test_model.c has what is counted.) */
#include "predicted.h"
#include "test.h"

#include <math.h>

static void near(double got, double expected) { assert_true(fabs(got - expected) <= 1e-12 * fabs(expected)); }

/* The formula, written out for an even ring: all ranks have the same queries and keys, and all see all. */
static void test_ring(void **state)
{
    enum { RANKS = 8, TOKENS = 1024 };
    const problem_case c = {"dense", TOKENS, TOKENS, {0}, 0, 0, ATTN_BF16, 0};
    const attn_split split = {.struct_size = sizeof split, .part = TOKENS / RANKS, .way = ATTN_WAY_RING};
    (void)state;
    for (int slow = 0; slow < 2; slow++) { /* messages are hidden, and are not */
        attn_split_machine m = predicted_machine;
        m.bytes_per_second = slow ? 1e6 : 1e12;
        m.seconds_per_message = slow ? 5e-6 : 1e-12;
        m.seconds_per_sum = 1e-9;
        const attn_split_prediction got = predicted_by(&c, ATTN_FORWARD, &split, RANKS, m);
        const double flops = 4.0 * PREDICTED_HEADS * PREDICTED_DIM * TOKENS * TOKENS, tokens = TOKENS / RANKS,
                     numbers = PREDICTED_HEADS * tokens * (PREDICTED_DIM + 1) * RANKS,
                     work = flops / RANKS / m.flops_per_second + numbers * 1e-9,
                     message = m.seconds_per_message + 2 * PREDICTED_HEADS_KV * tokens * PREDICTED_DIM * 2 / m.bytes_per_second;
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
    attn_split_machine m = predicted_machine;
    (void)state;
    m.bytes_per_second = 1e6, m.seconds_per_sum = 1e-9;
    const attn_split_prediction got = predicted_by(&c, ATTN_DOUBLE_BACKWARD, &split, RANKS, m);
    const double pairs = (double)PREDICTED_HEADS * TOKENS * TOKENS, tokens = TOKENS / RANKS,
                 keys = 3 * PREDICTED_HEADS_KV * tokens * PREDICTED_DIM * 4,
                 sums = 2 * PREDICTED_HEADS_KV * tokens * PREDICTED_DIM * 4, rows = PREDICTED_HEADS * tokens * (PREDICTED_DIM + 1),
                 queries = PREDICTED_HEADS * tokens * PREDICTED_DIM;
    near(got.flops, 2 * (7 + 5) * PREDICTED_DIM * pairs);
    near(got.combining, RANKS * (rows + queries + sums / 4) * m.seconds_per_sum);
    near(got.computing, got.flops / RANKS / m.flops_per_second);
    const double works[] = {2 * 5 * PREDICTED_DIM * pairs / RANKS / m.flops_per_second + RANKS * rows * m.seconds_per_sum,
                            2 * 7 * PREDICTED_DIM * pairs / RANKS / m.flops_per_second +
                                RANKS * (queries + sums / 4) * m.seconds_per_sum};
    double seconds = (RANKS - 1) * (m.seconds_per_message + sums / m.bytes_per_second);
    for (int run = 0; run < 2; run++)
        seconds += works[run] / RANKS + (RANKS - 1) * fmax(works[run] / RANKS, m.seconds_per_message + keys / m.bytes_per_second);
    near(got.seconds, seconds);
}

static double to_64(double bytes) { return ceil(bytes / 64) * 64; }

/* Heads that divide evenly, of all tokens: rows go before and come back after. */
static void test_heads(void **state)
{
    enum { RANKS = PREDICTED_HEADS_KV, OWN = 342, TOKENS = OWN * RANKS };
    const problem_case c = {"dense", TOKENS, TOKENS, {0}, 0, 0, ATTN_BF16, 0};
    const attn_split split = {.struct_size = sizeof split, .part = OWN, .way = ATTN_WAY_HEADS};
    const attn_split_prediction got = predicted_by(&c, ATTN_FORWARD, &split, RANKS, predicted_machine);
    const double head = OWN * PREDICTED_DIM * 2, q = PREDICTED_HEADS / RANKS * head, before = to_64(q) + 2 * to_64(head),
                 after = to_64(q),
                 work = 4.0 * PREDICTED_HEADS * PREDICTED_DIM * TOKENS * TOKENS / RANKS / predicted_machine.flops_per_second;
    (void)state;
    assert_int_equal(got.ranks_heads, RANKS);
    assert_int_equal(got.steps, 0);
    near(got.computing, work);
    near(got.imbalance, 1);
    near(got.waiting, 2 * (RANKS - 1) * predicted_machine.seconds_per_message +
                          (RANKS - 1) * (before + after) / predicted_machine.bytes_per_second);
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
        attn_split_machine m = predicted_machine;
        m.bytes_per_second = slow ? 1e6 : 1e12, m.seconds_per_message = slow ? 5e-6 : 1e-12, m.seconds_per_sum = 1e-9;
        const attn_split_prediction got = predicted_by(&c, op, &split, RANKS, m);
        const double part = 2 * OWN * PREDICTED_DIM * 4, pairs = (double)PREDICTED_HEADS * TOKENS * TOKENS,
                     numbers = op == ATTN_FORWARD
                                   ? PREDICTED_HEADS * OWN * (PREDICTED_DIM + 1)
                                   : PREDICTED_HEADS * OWN * PREDICTED_DIM + PREDICTED_HEADS_KV * 2 * OWN * PREDICTED_DIM,
                     work = (op == ATTN_FORWARD ? 4 : 10) * PREDICTED_DIM * pairs / RANKS / m.flops_per_second +
                            RANKS * numbers * 1e-9,
                     message = m.seconds_per_message + (RANKS - 1) * part / m.bytes_per_second,
                     sums = op == ATTN_FORWARD ? 0 : PREDICTED_HEADS_KV * message;
        near(got.computing + got.combining, work);
        near(got.waiting, message + (PREDICTED_HEADS_KV - 1) * fmax(message - work / PREDICTED_HEADS_KV, 0) + sums);
        near((double)got.key_bytes, part + 2 * (RANKS - 1) * part);
        assert_int_equal(got.steps, RANKS - 1);
        assert_true(got.cells_most == PREDICTED_HEADS_KV * RANKS);
    }
}

/* Pairs, with all of them counted one by one. */
static void test_work(void **state)
{
    (void)state;
    for (size_t n = 0; n < (size_t)predicted_count; n++) {
        const problem_case *c = &predicted[n];
        const attn_split split = {.struct_size = sizeof split, .part = 8};
        if (c->documents || c->mask.window || c->mask.chunk || !c->keys || c->has_sink < 0) continue;
        double pairs = 0;
        for (int64_t i = 0; i < c->queries; i++) {
            const int64_t position = i + (c->mask.align == ATTN_ALIGN_BOTTOM_RIGHT ? c->keys - c->queries : 0);
            pairs += c->mask.causal ? fmin(fmax((double)position + 1, 0), (double)c->keys) : (double)c->keys;
        }
        const attn_tensors t = predicted_tensors(c, ATTN_FORWARD, c->queries, c->keys);
        const int products = t.weights.data || t.column_sum.data ? 3 : 2; /* scores again, in a second run */
        near(predicted_by(c, ATTN_FORWARD, &split, 4, predicted_machine).flops,
             pairs * PREDICTED_HEADS * 2 * products * PREDICTED_DIM);
        near(predicted_by(c, ATTN_BACKWARD, &split, 4, predicted_machine).flops, 2.5 * pairs * PREDICTED_HEADS * 4 * PREDICTED_DIM);
    }
}

/* The same as a caller can find out, way after way; *best: what takes the least. */
static int64_t list_ways(const problem_case *c, attn_op op, attn_split split, int ranks, attn_split_prediction *best)
{
    const attn_problem p = predicted_problem(c, op);
    const attn_tensors t = predicted_tensors(c, op, c->queries, c->keys);
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
    for (size_t n = 0; n < (size_t)predicted_count; n++)
        for (int ranks = 1; ranks < 20; ranks++)
            for (int x = 0; x < 6; x++) {
                attn_split_machine m = predicted_machine;
                attn_split split = {.struct_size = sizeof split, .part = 3, .machine = &m};
                attn_split_prediction best = {.seconds = 0};
                const attn_op op = x % 2 ? ATTN_BACKWARD : ATTN_FORWARD;
                split.layout = (attn_layout)((n + (size_t)(ranks + x)) % ATTN_LAYOUT_OWNERS);
                m.bytes_per_second = rates[x / 2], m.seconds_per_message = x / 2 == 1 ? 0 : 1e-7;
                alone += list_ways(&predicted[n], op, split, ranks, &best) == 1;
                const attn_split_prediction got = predicted_by(&predicted[n], op, &split, ranks, m);
                if (got.way != best.way || got.ranks_heads != best.ranks_heads || got.seconds != best.seconds)
                    fail_msg("%s, op %d, %d ranks: way %d by %d takes %g s; auto is %d by %d, which takes %g", predicted[n].name,
                             (int)op, ranks, (int)best.way, (int)best.ranks_heads, best.seconds, (int)got.way, (int)got.ranks_heads,
                             got.seconds);
                split.way = ATTN_WAY_RING;
                const double ring = predicted_by(&predicted[n], op, &split, ranks, predicted_machine).seconds;
                split.way = ATTN_WAY_AUTO;
                const double fast = predicted_by(&predicted[n], op, &split, ranks, predicted_machine).seconds;
                if (fast > ring * (1 + 1e-12)) fail_msg("%s: %g s, and by the ring %g", predicted[n].name, fast, ring);
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
        const problem_case *c = &predicted[cases[n].problem];
        attn_split split = {.struct_size = sizeof split, .part = 4, .way = cases[n].way, .machine = cases[n].machine};
        attn_split_prediction got = {.struct_size = sizeof got};
        const attn_problem p = predicted_problem(c, cases[n].op);
        const attn_tensors t = predicted_tensors(c, cases[n].op, c->queries, c->keys);
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
    const attn_split_prediction forward = predicted_by(&c, ATTN_FORWARD, &split, 16384, predicted_machine),
                                backward = predicted_by(&c, ATTN_BACKWARD, &split, 16384, predicted_machine);
    const int64_t parts = INT64_C(1) << 20;
    assert_true(forward.cells_total == parts * (parts + 1) / 2);
    near(forward.flops, 4.0 * PREDICTED_HEADS * PREDICTED_DIM * 0x1p29 * (0x1p30 + 1));
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
    const attn_split_prediction few = predicted_by(&c, ATTN_FORWARD, &split, 2, predicted_machine),
                                many = predicted_by(&c, ATTN_FORWARD, &split, 1 << 22, predicted_machine);
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
            const attn_tensors t = predicted_tensors(&c, ATTN_FORWARD, 1, keys);
            attn_problem p = predicted_problem(&c, ATTN_FORWARD);
            attn_error error;
            p.shape.heads_q = p.shape.heads_kv = cases[n].heads, p.shape.batch = 1, p.shape.dim_v = wide ? 32 : 16;
            got[wide].struct_size = sizeof *got;
            if (attn_split_predict(&p, cases[n].ranks, &t, &split, &predicted_machine, &got[wide], &error) != ATTN_OK)
                fail_msg("%s", error.message);
            assert_int_equal(got[wide].messages, cases[n].messages + agreements);
        }
        assert_int_equal(got[1].bytes - got[0].bytes, cases[n].units * 16 * 4);
        assert_true(got[0].waiting >= (double)cases[n].messages * predicted_machine.seconds_per_message);
    }
}

/* Entries without lengths or offsets are alike: one is looked at, and all are computed. */
static void test_alike(void **state)
{
    const problem_case c = {"alike", 64, 64, {.causal = 1}, 0, 0, ATTN_F32, 0};
    const attn_split split = {.struct_size = sizeof split, .part = 16};
    const attn_tensors t = predicted_tensors(&c, ATTN_FORWARD, 64, 64);
    attn_problem p = predicted_problem(&c, ATTN_FORWARD);
    attn_split_prediction got[2];
    (void)state;
    for (int many = 0; many < 2; many++) {
        p.shape.batch = many ? INT64_C(1) << 22 : 1;
        got[many].struct_size = sizeof *got;
        assert_int_equal(attn_split_predict(&p, 4, &t, &split, &predicted_machine, &got[many], NULL), ATTN_OK);
    }
    near(got[1].flops, 0x1p22 * got[0].flops);
    near(got[1].computing, 0x1p22 * got[0].computing);
    assert_int_equal(got[1].cells_total, got[0].cells_total);
}

static void test_rejects(void **state)
{
    const attn_problem p = predicted_problem(&predicted[0], ATTN_FORWARD);
    const attn_tensors t = predicted_tensors(&predicted[0], ATTN_FORWARD, 64, 48);
    attn_split_prediction d = {.struct_size = sizeof d, .seconds = -7};
    attn_error error;
    const struct {
        const char *message;
        attn_split_machine machine;
    } wrong[] = {{"machine.flops_per_second is 0; it must be above 0", {sizeof predicted_machine, 0, 1, 0, 0, {0}}},
                 {"machine.bytes_per_second is nan; it must be above 0", {sizeof predicted_machine, 1, NAN, 0, 0, {0}}},
                 {"machine.seconds_per_message is -1; it must be at least 0", {sizeof predicted_machine, 1, 1, -1, 0, {0}}},
                 {"machine.seconds_per_sum is inf; it must be at least 0", {sizeof predicted_machine, 1, 1, 0, INFINITY, {0}}},
                 {"machine is too slow: 1e-305 operations and 1 bytes a second, 0 seconds a message; its seconds overflow",
                  {sizeof predicted_machine, 1e-305, 1, 0, 0, {0}}},
                 {"machine.reserved[2] is 5; it must be 0", {sizeof predicted_machine, 1, 1, 0, 0, {0, 0, 5, 0}}}};
    (void)state;
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        assert_int_equal(attn_split_predict(&p, 2, &t, NULL, &wrong[n].machine, &d, &error), ATTN_ERR_ARGUMENT);
        assert_string_equal(error.message, wrong[n].message);
    }
    const attn_call call = {.struct_size = sizeof call, .reserved = 1};
    attn_tensors called = t;
    called.call = &call;
    assert_int_equal(attn_split_predict(&p, 2, &called, NULL, &predicted_machine, &d, &error), ATTN_ERR_ARGUMENT);
    assert_string_equal(error.message, "call.reserved is 1; it must be 0");
    assert_int_equal(attn_split_predict(NULL, 2, &t, NULL, &predicted_machine, &d, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_split_predict(&p, 2, NULL, NULL, &predicted_machine, &d, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_split_predict(&p, 0, &t, NULL, &predicted_machine, &d, &error), ATTN_ERR_ARGUMENT);
    const attn_split split = {.struct_size = sizeof split, .machine = &wrong[0].machine};
    assert_int_equal(attn_split_predict(&p, 2, &t, &split, NULL, &d, &error), ATTN_ERR_ARGUMENT);
    assert_int_equal(attn_split_predict(&p, 2, &t, NULL, &predicted_machine, NULL, &error), ATTN_ERR_ARGUMENT);
    assert_true(d.seconds == -7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring),   cmocka_unit_test(test_two_runs), cmocka_unit_test(test_work),
        cmocka_unit_test(test_heads),  cmocka_unit_test(test_gather),   cmocka_unit_test(test_auto),
        cmocka_unit_test(test_why),    cmocka_unit_test(test_large),    cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_decode), cmocka_unit_test(test_alike),    cmocka_unit_test(test_rejects)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
