/* SPDX-License-Identifier: MIT
 *
 * test_parts.c - a problem over parts equals one call, and has the same bits for every number of ranks, layout and way. */
#include "spread.h"
#include "testing/random/share.h"

#include <math.h>

enum { SEEDS = CASES(80), MOST_PARTS = 512 };

/* The same bits on other ranks, in other layouts and ways. */
static void check_ranks(whole *w, const spread *all, const spread *one, spread_way way)
{
    static const int ranks[] = {2, 3, 4, 5, 8};
    static int32_t owners[2][MOST_PARTS];
    for (int n = 0; n < 3; n++) {
        spread other;
        way.ranks = ranks[random_below(&w->random, 5)];
        way.split.layout = (attn_layout)random_below(&w->random, ATTN_LAYOUT_OWNERS + 1);
        way.split.owners_q = way.split.owners_kv = NULL;
        if (way.split.layout == ATTN_LAYOUT_OWNERS) {
            for (int k = 0; k < MOST_PARTS; k++) owners[0][k] = (int32_t)random_below(&w->random, way.ranks);
            for (int k = 0; k < MOST_PARTS; k++) owners[1][k] = (int32_t)random_below(&w->random, way.ranks);
            way.split.owners_q = owners[0], way.split.owners_kv = owners[1];
        }
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

static double check(uint64_t seed, attn_dtype dtype, attn_op op, int packed)
{
    static whole w;
    spread_more more;
    double worst = 0;
    const int64_t part_size = spread_draw(&w, &more, seed, dtype, packed);
    if (part_size > 0 && spread_has(&w, &more, op)) {
        spread forward, all, one;
        const spread_way way = {.ranks = 1, .split = {.struct_size = sizeof way.split, .part = part_size}};
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
    for (int d = 0; d < 4; d++) {
        double worst = 0;
        for (int seed = 0; seed < share_of_cases((d / 2 ? 3 : 1) * SEEDS); seed++)
            worst = fmax(worst, check((uint64_t)seed, d & 1 ? ATTN_F64 : ATTN_F32, op, d / 2));
        print_message("%s, %s%s: at most %.3f of the tolerance\n", name, d & 1 ? "f64" : "f32", d / 2 ? ", packed" : "", worst);
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
