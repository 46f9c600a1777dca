/* SPDX-License-Identifier: MIT
 *
 * test_parts.c - a problem over parts equals one call, and has the same bits for every number of ranks, layout and way. */
#include "spread.h"

#include <math.h>

enum { SEEDS = CASES(150) };

static int64_t part_of(whole *w)
{
    const attn_mask *m = &w->problem.mask;
    int64_t step = m->block_q > 0 ? m->block_q : 1;
    if (m->block_kv > 0)
        while (step % m->block_kv) step += m->block_q;
    const int64_t most = w->problem.shape.len_kv / step + 1;
    return step * (1 + random_below(&w->random, most < 12 ? most : 12) * (1 + random_below(&w->random, 6)));
}

static spread_more more_of(whole *w)
{
    static const char *const names[] = {"", " softmax-one", " sigmoid", " relu", " sink"};
    const int kind = random_below(&w->random, 3) ? 0 : 1 + (int)random_below(&w->random, 4);
    spread_more more = {.normaliser = kind < 4 ? (attn_normaliser)kind : ATTN_NORMALISER_SOFTMAX};
    strcat(w->text, names[kind]);
    if (kind == 4) {
        more.sink = array_make(w->dtype, 1, w->problem.shape.heads_q, 1, 1);
        for (int64_t h = 0; h < w->problem.shape.heads_q; h++) array_put(&more.sink, 0, h, 0, 0, random_signed(&w->random));
    }
    return more;
}

/* The same bits on other ranks, in other layouts and ways. */
static void check_ranks(whole *w, const spread *all, const spread *one, spread_way way)
{
    static const int ranks[] = {2, 3, 4, 5, 8};
    for (int n = 0; n < 3; n++) {
        spread other;
        way.ranks = ranks[random_below(&w->random, 5)];
        way.split.layout = (attn_layout)random_below(&w->random, 3);
        way.split.way = (attn_way)random_below(&w->random, 3);
        way.threads = 1 + (int)random_below(&w->random, 3);
        way.delays = random_below(&w->random, 2) ? 1 + (uint64_t)n : 0;
        spread_run(all, &way, &other);
        if (!spread_same(one, &other))
            fail_msg("%s: other bits on %d ranks, part %d, layout %d, way %d", w->text, way.ranks, (int)way.split.part,
                     (int)way.split.layout, (int)way.split.way);
        spread_free(&other);
    }
}

static double check(uint64_t seed, attn_dtype dtype, attn_op op)
{
    static whole w;
    double worst = 0;
    whole_draw(&w, seed, dtype);
    spread_more more = more_of(&w);
    if (!w.lists.data && !w.page_size && spread_has(&w, &more, op)) {
        spread forward, all, one;
        const spread_way way = {.ranks = 1, .split = {.struct_size = sizeof way.split, .part = part_of(&w)}};
        spread_make(&forward, &w, &more, ATTN_FORWARD, NULL);
        spread_make(&all, &w, &more, op, op == ATTN_FORWARD ? NULL : &forward);
        spread_run(&all, &way, &one);
        worst = spread_compare(&all, &one, dtype == ATTN_F64 ? 1e-13 : 2e-5);
        check_ranks(&w, &all, &one, way);
        spread_free(&one), spread_free(&all), spread_free(&forward);
    }
    free(more.sink.data);
    whole_free(&w);
    return worst;
}

static void test_op(attn_op op, const char *name)
{
    for (int d = 0; d < 2; d++) {
        double worst = 0;
        for (int seed = 0; seed < SEEDS; seed++) worst = fmax(worst, check((uint64_t)seed, d ? ATTN_F64 : ATTN_F32, op));
        print_message("%s, %s: at most %.3f of the tolerance\n", name, d ? "f64" : "f32", worst);
    }
}

static void test_forward(void **state) { (void)state, test_op(ATTN_FORWARD, "forward"); }
static void test_backward(void **state) { (void)state, test_op(ATTN_BACKWARD, "backward"); }
static void test_jvp(void **state) { (void)state, test_op(ATTN_JVP, "jvp"); }

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_forward), cmocka_unit_test(test_backward), cmocka_unit_test(test_jvp)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
