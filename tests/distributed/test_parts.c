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

static void draw_starts(whole *w, int64_t tokens, int64_t count, int64_t *starts)
{
    for (int64_t b = 1; b < count; b++) starts[b] = random_below(&w->random, tokens + 1);
    starts[count] = tokens;
    for (int64_t a = 1; a < count; a++)
        for (int64_t b = a; b > 1 && starts[b - 1] > starts[b]; b--) {
            const int64_t x = starts[b];
            starts[b] = starts[b - 1], starts[b - 1] = x;
        }
}

/* Packed sequences, where that is supported.  Returns 0 if it is not. */
static int pack(whole *w, spread_more *more)
{
    if (w->mask.data || w->bias.data || w->block_mask.data || w->ranges.data || w->has_lengths) return 0;
    more->documents = 1 + random_below(&w->random, 8);
    draw_starts(w, w->problem.shape.len_q, more->documents, more->starts_q);
    draw_starts(w, w->problem.shape.len_kv, more->documents, more->starts_kv);
    strcat(w->text, " packed");
    return 1;
}

static double check(uint64_t seed, attn_dtype dtype, attn_op op, int packed)
{
    static whole w;
    double worst = 0;
    whole_draw(&w, seed, dtype);
    spread_more more = more_of(&w);
    if (!w.lists.data && !w.page_size && spread_has(&w, &more, op) && (!packed || pack(&w, &more))) {
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
    for (int d = 0; d < 4; d++) {
        double worst = 0;
        for (int seed = 0; seed < (d / 2 ? 3 : 1) * SEEDS; seed++)
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
