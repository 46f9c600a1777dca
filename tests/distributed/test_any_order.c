/* SPDX-License-Identifier: MIT
 *
 * test_any_order.c - attn_split.any_order: near one call in all ways, on any ranks, with the bits of the last time however late
 * messages come; what ranks send is what they say; and fewer results wait than in trees.  (test_bound.c has the errors,
 * test_model.c and test_describe.c the counts.) */
#include "spread.h"
#include "testing/random/share.h"

#include <math.h>

enum { SEEDS = CASES(30), RUNS = 3 };

/* Returns how far from one call; runs twice, with other delays and threads. */
static double check_run(const spread *all, spread_way way, double tolerance)
{
    spread first, again;
    spread_run(all, &way, &first);
    way.delays += 77, way.threads = way.threads % 3 + 1;
    spread_run(all, &way, &again);
    if (!spread_same(&first, &again))
        fail_msg("%s: other bits, by chance, on %d ranks, layout %d, way %d", all->w->text, way.ranks, (int)way.split.layout,
                 (int)way.split.way);
    const double worst = spread_compare(all, &first, tolerance);
    spread_free(&first), spread_free(&again);
    return worst;
}

static double check(uint64_t seed, attn_dtype dtype, attn_op op, int kinds, int *ran)
{
    static const attn_way ways[] = {ATTN_WAY_AUTO,  ATTN_WAY_RING,       ATTN_WAY_DIRECT,
                                    ATTN_WAY_HEADS, ATTN_WAY_HEADS_RING, ATTN_WAY_GATHER};
    static whole w;
    spread_more more;
    double worst = 0;
    const int64_t part_size = spread_draw(&w, &more, seed, dtype, kinds);
    if (part_size > 0 && spread_has(&w, &more, op)) {
        spread forward, all;
        spread_make(&forward, &w, &more, ATTN_FORWARD, NULL);
        spread_make(&all, &w, &more, op, op == ATTN_FORWARD ? NULL : &forward);
        for (int n = 0; n < RUNS; n++) {
            spread_way way = {.ranks = 1 + (int)random_below(&w.random, n ? 8 : 1),
                              .split = {.struct_size = sizeof way.split, .part = part_size, .any_order = 1},
                              .delays = (uint64_t)n,
                              .threads = 1 + (int)random_below(&w.random, 3)};
            way.split.layout = (attn_layout)random_below(&w.random, ATTN_LAYOUT_OWNERS);
            way.split.way = ways[random_below(&w.random, spread_sums_heads(&more, op) ? 3 : 6)];
            worst = fmax(worst, check_run(&all, way, dtype == ATTN_F64 ? 1e-13 : 2e-5));
        }
        spread_free(&all), spread_free(&forward);
        ++*ran;
    }
    spread_more_free(&more);
    whole_free(&w);
    return worst;
}

static void test_operations(void **state)
{
    static const attn_op ops[] = {ATTN_FORWARD, ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    static const struct {
        attn_dtype dtype;
        int kinds;
    } all[] = {{ATTN_F32, 0},
               {ATTN_F64, SPREAD_PACKED},
               {ATTN_F32, SPREAD_SHARED},
               {ATTN_F32, SPREAD_EMPTY},
               {ATTN_F64, SPREAD_OUTPUTS},
               {ATTN_F32, SPREAD_OUTPUTS | SPREAD_UNIFORM | SPREAD_PACKED},
               {ATTN_F32, SPREAD_MIXED | SPREAD_SHARED | SPREAD_PACKED}};
    (void)state;
    for (int op = 0; op < 4; op++) {
        const int seeds = (int)share_of_cases(SEEDS);
        double worst = 0;
        int ran = 0;
        for (size_t n = 0; n < sizeof all / sizeof *all; n++)
            for (int seed = 0; seed < seeds && (op == 0 || !(all[n].kinds & SPREAD_OUTPUTS) || all[n].kinds & SPREAD_UNIFORM);
                 seed++)
                worst = fmax(worst, check((uint64_t)seed, all[n].dtype, ops[op], all[n].kinds, &ran));
        print_message("operation %d in any order: %d ran, at most %.3f of the tolerance\n", op, ran, worst);
        assert_in_range(ran, seeds / 8, 7 * seeds); /* (sanitizers have two seeds) */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_operations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
