/* SPDX-License-Identifier: MIT
 *
 * test_parts.c - a problem over parts equals one call, and has the same bits for every number of ranks, layout and way. */
#include "spread.h"
#include "testing/random/share.h"

#include <math.h>

enum { SEEDS = CASES(80), MOST_SEEDS = 200, LEAST_RUNS = 2, MOST_PARTS = 512 };

/* The same bits on other ranks, in other layouts and ways; a sum over heads by none that computes them apart. */
static void check_ranks(whole *w, const spread *all, const spread *one, spread_way way, int shares_heads)
{
    static const int ranks[] = {2, 3, 4, 5, 6, 8};
    static const attn_way ways[] = {ATTN_WAY_AUTO,  ATTN_WAY_RING,       ATTN_WAY_DIRECT,
                                    ATTN_WAY_HEADS, ATTN_WAY_HEADS_RING, ATTN_WAY_GATHER};
    static int32_t owners[2][MOST_PARTS];
    for (int n = 0; n < 3; n++) {
        spread other;
        way.ranks = ranks[random_below(&w->random, 6)];
        way.split.layout = (attn_layout)random_below(&w->random, ATTN_LAYOUT_OWNERS + 1);
        way.split.owners_q = way.split.owners_kv = NULL;
        if (way.split.layout == ATTN_LAYOUT_OWNERS) {
            for (int k = 0; k < MOST_PARTS; k++) owners[0][k] = (int32_t)random_below(&w->random, way.ranks);
            for (int k = 0; k < MOST_PARTS; k++) owners[1][k] = (int32_t)random_below(&w->random, way.ranks);
            way.split.owners_q = owners[0], way.split.owners_kv = owners[1];
        }
        way.split.way = ways[random_below(&w->random, shares_heads ? 3 : 6)];
        way.split.ranks_heads = 0;
        if (way.split.way == ATTN_WAY_HEADS_RING) way.split.ranks_heads = random_below(&w->random, way.ranks + 1);
        while (way.split.ranks_heads && way.ranks % way.split.ranks_heads) way.split.ranks_heads--;
        way.threads = 1 + (int)random_below(&w->random, 3);
        way.delays = random_below(&w->random, 2) ? 1 + (uint64_t)n : 0;
        spread_run(all, &way, &other);
        if (!spread_same(one, &other))
            fail_msg("%s: other bits on %d ranks, part %d, layout %d, way %d", w->text, way.ranks, (int)way.split.part,
                     (int)way.split.layout, (int)way.split.way);
        spread_free(&other);
    }
}

static double check(uint64_t seed, attn_dtype dtype, attn_op op, int kinds, int *ran)
{
    static whole w;
    spread_more more;
    double worst = 0;
    const int64_t part_size = spread_draw(&w, &more, seed, dtype, kinds);
    if (part_size > 0 && spread_has(&w, &more, op)) {
        spread forward, all, one;
        const spread_way way = {.ranks = 1, .split = {.struct_size = sizeof way.split, .part = part_size}};
        spread_make(&forward, &w, &more, ATTN_FORWARD, NULL);
        spread_make(&all, &w, &more, op, op == ATTN_FORWARD ? NULL : &forward);
        spread_run(&all, &way, &one);
        worst = spread_compare(&all, &one, dtype == ATTN_F64 ? 1e-13 : 2e-5);
        check_ranks(&w, &all, &one, way, spread_sums_heads(&more, op));
        spread_free(&one), spread_free(&all), spread_free(&forward);
        ++*ran;
    }
    spread_more_free(&more);
    whole_free(&w);
    return worst;
}

static void test_op(attn_op op, const char *name)
{
    static const struct {
        const char *name;
        attn_dtype dtype;
        int kinds, seeds, least; /* least: of 100 that must run: the others have options that parts do not have */
    } all[] = {{"f32", ATTN_F32, 0, SEEDS, 25},
               {"f64", ATTN_F64, 0, SEEDS, 25},
               {"mixed", ATTN_F32, SPREAD_MIXED, SEEDS / 2, 25},
               {"f32, a shared bias", ATTN_F32, SPREAD_SHARED, SEEDS, 8},
               {"f64, a shared bias", ATTN_F64, SPREAD_SHARED, SEEDS, 8},
               {"mixed, a shared bias", ATTN_F32, SPREAD_SHARED | SPREAD_MIXED, SEEDS, 8},
               {"f32, a shared bias, empty", ATTN_F32, SPREAD_SHARED | SPREAD_EMPTY, SEEDS, 8},
               {"f32, empty", ATTN_F32, SPREAD_EMPTY, SEEDS, 25},
               {"f32, outputs", ATTN_F32, SPREAD_OUTPUTS, SEEDS, 25},
               {"f64, outputs", ATTN_F64, SPREAD_OUTPUTS, SEEDS, 25},
               {"mixed, outputs", ATTN_F32, SPREAD_OUTPUTS | SPREAD_MIXED, SEEDS, 25},
               {"f32, uniform", ATTN_F32, SPREAD_OUTPUTS | SPREAD_UNIFORM, SEEDS, 15},
               {"f64, uniform, packed", ATTN_F64, SPREAD_OUTPUTS | SPREAD_UNIFORM | SPREAD_PACKED, SEEDS, 8},
               {"f32, outputs, empty", ATTN_F32, SPREAD_OUTPUTS | SPREAD_EMPTY, SEEDS, 25},
               {"f32, outputs, packed", ATTN_F32, SPREAD_OUTPUTS | SPREAD_PACKED, SEEDS, 12},
               {"f32, packed", ATTN_F32, SPREAD_PACKED, 2 * SEEDS, 12},
               {"f64, packed", ATTN_F64, SPREAD_PACKED, 2 * SEEDS, 12},
               {"f32, packed, a shared bias", ATTN_F32, SPREAD_PACKED | SPREAD_SHARED, 2 * SEEDS, 2},
               {"mixed, packed", ATTN_F32, SPREAD_PACKED | SPREAD_MIXED, SEEDS, 12},
               {"f32, packed, empty", ATTN_F32, SPREAD_PACKED | SPREAD_EMPTY, SEEDS, 12}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        double worst = 0;
        const int seeds = (int)share_of_cases(all[n].seeds);
        int ran = 0, seed = 0;
        if (all[n].kinds & SPREAD_OUTPUTS && !(all[n].kinds & SPREAD_UNIFORM) && op != ATTN_FORWARD) continue;
        for (; seed < seeds || (ran < LEAST_RUNS && seed < MOST_SEEDS); seed++) /* each kind runs, also under sanitizers */
            worst = fmax(worst, check((uint64_t)seed, all[n].dtype, op, all[n].kinds, &ran));
        print_message("%s, %s: %d of %d, at most %.3f of the tolerance\n", name, all[n].name, ran, seed, worst);
        assert_in_range(ran, LEAST_RUNS, seed);
        assert_in_range(100 * ran + 400, all[n].least * seed, 100 * seed + 400); /* but for four of few */
    }
}

static void test_forward(void **state) { (void)state, test_op(ATTN_FORWARD, "forward"); }
static void test_backward(void **state) { (void)state, test_op(ATTN_BACKWARD, "backward"); }
static void test_jvp(void **state) { (void)state, test_op(ATTN_JVP, "jvp"); }
static void test_second(void **state) { (void)state, test_op(ATTN_DOUBLE_BACKWARD, "double backward"); }

/* Double backward of which the tangents of o and lse are known; they are numbers like any others. */
static void test_given(void **state)
{
    static const int kinds[] = {0, SPREAD_PACKED, SPREAD_MIXED, SPREAD_UNIFORM};
    int ran = 0;
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        static whole w;
        spread_more more;
        const int64_t part_size = spread_draw(&w, &more, seed, ATTN_F32, kinds[seed / 2 % 4]);
        if (part_size > 0 && spread_has(&w, &more, ATTN_DOUBLE_BACKWARD)) {
            spread forward, tangents, known, all, one;
            const spread_way way = {.ranks = 1, .split = {.struct_size = sizeof way.split, .part = part_size}};
            spread_make(&forward, &w, &more, ATTN_FORWARD, NULL);
            spread_make(&tangents, &w, &more, ATTN_JVP, &forward);
            for (int n = 0; n < tangents.count; n++) {
                spread_tensor *x = &tangents.all[n];
                for (int64_t k = 0; !strcmp(x->about.name, "tan_lse") && k < x->shape[0] * x->shape[1] * x->shape[2]; k++)
                    ((float *)(void *)x->data)[k] += 0.5f;
            }
            known = forward;
            for (int n = 0; n < known.count; n++)
                if (tangents.all[n].role == ATTN_ROLE_OUTPUT) known.all[n] = tangents.all[n];
            spread_make(&all, &w, &more, ATTN_DOUBLE_BACKWARD, &known);
            spread_run(&all, &way, &one);
            (void)spread_compare(&all, &one, 2e-5);
            check_ranks(&w, &all, &one, way, more.shares[1]);
            spread_free(&one), spread_free(&all), spread_free(&tangents), spread_free(&forward);
            ran++;
        }
        spread_more_free(&more);
        whole_free(&w);
    }
    assert_in_range(ran, SEEDS / 8, SEEDS);
}

/* Over parts of so many tokens, on one rank. */
static void compute_over_parts(const attn_problem *p, const attn_tensors *t, int64_t tokens)
{
    attn_error error;
    attn_distributed_plan *plan;
    const attn_split split = {.struct_size = sizeof split, .part = tokens};
    assert_int_equal(attn_distributed_plan_create(&plan, p, t, &split, NULL, NULL, &error), ATTN_OK);
    const size_t size = attn_distributed_workspace_size(plan);
    void *workspace = malloc(size);
    assert_non_null(workspace);
    assert_int_equal(attn_distributed_execute(plan, t, workspace, size, &error), ATTN_OK);
    free(workspace);
    attn_distributed_plan_destroy(plan);
}

/* Of equal weights in different parts the lowest index comes first. */
static void test_ties(void **state)
{
    enum { KEYS = 8, TOP = 6 };
    static const float zeros[KEYS];
    float o[1];
    int64_t index[TOP];
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 1, KEYS, 1, 1}, .outputs.topk = TOP};
    const attn_tensors t = {.struct_size = sizeof t,
                            .q = attn_in(zeros),
                            .k = attn_in(zeros),
                            .v = attn_in(zeros),
                            .o = attn_out(o),
                            .topk_index = attn_out(index)};
    (void)state;
    compute_over_parts(&p, &t, 2);
    for (int n = 0; n < TOP; n++) assert_int_equal(index[n], n);
}

/* A key that is seen is listed, also if its weight, or that of all keys of its part, is 0. */
static void test_weights_of_0(void **state)
{
    enum { KEYS = 5, TOP = KEYS + 1 };
    static const float q[] = {1}, v[KEYS];
    float k[KEYS] = {0, 1e30f, 5, 2e30f, 1}, o[1], weight[TOP];
    int64_t index[TOP];
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 1, KEYS, 1, 1}, .outputs.topk = TOP};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    t.topk_index = attn_out(index), t.topk_weight = attn_out(weight);
    (void)state;
    for (int64_t tokens = 1; tokens <= KEYS; tokens++) {
        int seen = 0;
        compute_over_parts(&p, &t, tokens);
        for (int n = 0; n < KEYS; n++) {
            assert_in_range(index[n], 0, KEYS - 1);
            seen |= 1 << index[n];
            assert_true(weight[n] == (n ? 0 : 1));
        }
        assert_int_equal(index[0], 3), assert_int_equal(seen, (1 << KEYS) - 1), assert_int_equal(index[KEYS], -1);
    }
}

/* Weights come in bands of 64 queries: of packed sequences, which begin anywhere in a part; and in whole blocks of a block mask. */
static void check_bands(int packed)
{
    enum { TOKENS = 300, DIM = 2, BLOCK = 5, BLOCKS = TOKENS / BLOCK };
    static unsigned char blocks[BLOCKS * BLOCKS];
    static const int64_t starts[] = {0, 3, 150, 151, TOKENS};
    static float in[TOKENS * DIM], o[TOKENS * DIM];
    float expected[TOKENS], got[TOKENS];
    random_state r = random_from(7);
    attn_error error;
    attn_problem p = {
        .struct_size = sizeof p, .shape = {4, 1, 1, 149, 149, DIM, DIM}, .mask.causal = 1, .outputs.column_queries = 130};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(in), .k = attn_in(in), .v = attn_in(in), .o = attn_out(o)};
    for (int n = 0; n < TOKENS * DIM; n++) in[n] = (float)random_signed(&r);
    for (int n = 0; n < BLOCKS * BLOCKS; n++) blocks[n] = random_below(&r, 2) != 0;
    if (packed) t.cu_seqlens_q = t.cu_seqlens_kv = attn_in(starts);
    else {
        p.shape.batch = 1, p.shape.len_q = p.shape.len_kv = TOKENS;
        p.mask.block_q = p.mask.block_kv = BLOCK;
        t.block_mask = (attn_input){.data = blocks, .dtype = ATTN_U8};
    }
    t.column_sum = attn_out(expected);
    assert_int_equal(attn_compute(&p, &t, &error), ATTN_OK);
    t.column_sum = attn_out(got);
    for (int64_t tokens = 100; tokens <= TOKENS; tokens += 50) {
        compute_over_parts(&p, &t, tokens);
        for (int n = 0; n < TOKENS; n++) assert_true(fabsf(got[n] - expected[n]) <= 2e-5f * (1 + expected[n]));
    }
}

static void test_bands(void **state) { (void)state, check_bands(1), check_bands(0); }

/* NaN in a query, or in a key that is seen, is in the weights of the keys that the query sees, and in no others, nor in their sums:
 * keys behind the causal query, and behind the length, have cells that the query sees in part, or not at all. */
static void check_nan(int in_query, int broken, attn_empty empty)
{
    enum { TOKENS = 6, LENGTH = 4 };
    static const int64_t length[] = {LENGTH};
    float q[TOKENS] = {0}, k[TOKENS] = {0}, o[TOKENS], weights[TOKENS][TOKENS], column[TOKENS];
    const attn_problem p = {
        .struct_size = sizeof p, .shape = {1, 1, 1, TOKENS, TOKENS, 1, 1}, .mask = {.causal = 1, .empty = empty}};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(k), .v = attn_in(k), .o = attn_out(o)};
    t.lengths_kv = attn_in(length), t.weights = attn_out(weights), t.column_sum = attn_out(column);
    (in_query ? q : k)[broken] = NAN;
    for (int64_t tokens = 1; tokens <= TOKENS; tokens++) {
        compute_over_parts(&p, &t, tokens);
        for (int j = 0; j < TOKENS; j++) {
            int some = 0;
            for (int i = 0; i < TOKENS; i++) {
                const int reached = in_query ? i == broken : broken <= i && broken < LENGTH,
                          is_nan = reached && j <= i && j < LENGTH;
                assert_int_equal(isnan(weights[i][j]) != 0, is_nan);
                some |= is_nan;
            }
            assert_int_equal(isnan(column[j]) != 0, some);
        }
    }
}

static void test_nan(void **state)
{
    (void)state;
    for (int n = 0; n < 24; n++) check_nan(n % 2, n / 4, n / 2 % 2 ? ATTN_EMPTY_UNIFORM : ATTN_EMPTY_ZERO);
}

/* NaN in a value that is seen is in o, also if the weight of its whole part is rounded to 0; not if the value is not seen. */
static void check_nan_value(int broken, int large)
{
    enum { KEYS = 5, WIDTH = 2, LENGTH = 4 };
    static const int64_t length[] = {LENGTH};
    static const float q[] = {1};
    float k[KEYS] = {0}, v[KEYS][WIDTH] = {{0}}, o[WIDTH];
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 1, KEYS, 1, WIDTH}};
    attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
    t.lengths_kv = attn_in(length);
    k[large] = 1e4f, v[large][0] = v[large][1] = 3, v[broken][1] = NAN;
    for (int64_t tokens = 1; tokens <= KEYS; tokens++) {
        compute_over_parts(&p, &t, tokens);
        assert_true(o[0] == 3);
        assert_int_equal(isnan(o[1]) != 0, broken < LENGTH);
    }
}

static void test_nan_value(void **state)
{
    (void)state;
    for (int n = 0; n < 20; n++) check_nan_value(n / 4, n % 4);
}

/* Parts of a tensor whose bytes overflow do not. */
static void test_too_large(void **state)
{
    attn_error error;
    attn_distributed_plan *plan;
    const int64_t tokens = INT64_C(1) << 46;
    const attn_problem p = {.struct_size = sizeof p, .shape = {1, 2, 2, tokens, tokens, 1 << 17, 1}};
    const attn_input in = attn_in(ATTN_LATER);
    const attn_tensors t = {.struct_size = sizeof t, .q = in, .k = in, .v = in, .o = attn_out((void *)(uintptr_t)ATTN_LATER)};
    const attn_split split = {.struct_size = sizeof split, .part = tokens / 64};
    (void)state;
    assert_int_equal(attn_distributed_plan_create(&plan, &p, &t, &split, NULL, NULL, &error), ATTN_ERR_SHAPE);
    assert_string_equal(error.message, "distributed: q is too large: its bytes overflow 64 bits");
}

/* Gradients that all share, of no heads, have no place that could be cleared (for a sanitizer). */
static void test_no_heads(void **state)
{
    enum { TOKENS = 4 };
    const attn_problem p = {.struct_size = sizeof p, .op = ATTN_BACKWARD, .shape = {1, 0, 0, TOKENS, TOKENS, 1, 1}};
    const attn_input in = attn_in(ATTN_EMPTY);
    const attn_output out = attn_out((void *)(uintptr_t)ATTN_EMPTY);
    const attn_tensors t = {.struct_size = sizeof t,
                            .q = in,
                            .k = in,
                            .v = in,
                            .o = out,
                            .lse = out,
                            .sink = in,
                            .bias = {ATTN_EMPTY, ATTN_F32, {8, 8, ATTN_BROADCAST, 1}},
                            .grad_o = in,
                            .grad_q = out,
                            .grad_k = out,
                            .grad_v = out,
                            .grad_sink = out,
                            .grad_bias = out};
    (void)state;
    compute_over_parts(&p, &t, 2);
}

/* What a rank keeps between two runs takes more bytes than the 16-bit tensor of the caller. */
static void test_tangents_too_large(void **state)
{
    attn_distributed_plan *plan;
    attn_error error;
    const attn_problem p = {
        .struct_size = sizeof p, .op = ATTN_DOUBLE_BACKWARD, .shape = {1, 1, 1, INT64_C(1) << 13, 1, 1, INT64_C(1) << 48}};
    const attn_input in = {ATTN_LATER, ATTN_BF16, {0, 0, 0, 0}};
    const attn_output out = {ATTN_LATER, ATTN_BF16, {0, 0, 0, 0}};
    const attn_tensors t = {.struct_size = sizeof t,
                            .q = in,
                            .k = in,
                            .v = in,
                            .o = out,
                            .lse = attn_out(ATTN_LATER),
                            .grad_o = in,
                            .second_grad_o = out,
                            .second_q = out,
                            .second_k = out,
                            .second_v = out};
    const attn_split split = {.struct_size = sizeof split, .part = 1};
    (void)state;
    assert_int_equal(attn_distributed_plan_create(&plan, &p, &t, &split, NULL, NULL, &error), ATTN_ERR_SHAPE);
    assert_string_equal(error.message, "distributed: tan_o of a rank is too large: its bytes overflow 64 bits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward),
                                       cmocka_unit_test(test_backward),
                                       cmocka_unit_test(test_jvp),
                                       cmocka_unit_test(test_second),
                                       cmocka_unit_test(test_given),
                                       cmocka_unit_test(test_ties),
                                       cmocka_unit_test(test_weights_of_0),
                                       cmocka_unit_test(test_bands),
                                       cmocka_unit_test(test_nan),
                                       cmocka_unit_test(test_nan_value),
                                       cmocka_unit_test(test_no_heads),
                                       cmocka_unit_test(test_too_large),
                                       cmocka_unit_test(test_tangents_too_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
