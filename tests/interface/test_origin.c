/* SPDX-License-Identifier: MIT
 *
 * test_origin.c - a part of a problem, given its origin, is computed as in the whole: any partition of batch entries, heads,
 * queries and keys, with results over disjoint keys merged, sees the same keys, draws the same dropout and has the same distances
 * as one call, forward and backward, with pages and block lists; and has the same bits where the interface guarantees them.
 */
#include "cut/cut.h"

#include <math.h>

enum { SEEDS = CASES(400) };

static double worse(double worst, const sums *s, const whole *w, attn_op op, double tolerance)
{
    for (int n = 0; n < CUT_RESULTS; n++)
        if (cut_results[n].op == op && (n != CUT_KEEP || w->problem.dropout.probability > 0))
            worst = fmax(worst, sums_compare(s, w, n, n == CUT_KEEP ? 0 : tolerance));
    return worst;
}

/* All key parts of some queries: o and lse are merged, the other outputs summed.  Backward reads o and lse of the whole, as in ring
 * attention. */
static void each_key_part(whole *w, const cuts *c, int b, int h, int i, sums *all)
{
    results kept[CUT_PARTS];
    part p = {0};
    for (int j = 0; j < c->kv.n; j++) {
        p = cuts_part(c, b, h, i, j);
        kept[j] = results_make(w, &p);
        part_run(w, &p, ATTN_FORWARD, &kept[j], (flows){0});
        part_run(w, &p, ATTN_BACKWARD, &kept[j], (flows){0});
        for (int n = CUT_KEEP; n <= CUT_GRAD_V; n++) sums_add(all, w, n, &p, &kept[j].of[n]);
    }
    results into = results_make(w, &p);
    parts_merge(w, &p, kept, c->kv.n, &into);
    sums_add(all, w, CUT_O, &p, &into.of[CUT_O]), sums_add(all, w, CUT_LSE, &p, &into.of[CUT_LSE]);
    results_free(&into);
    for (int j = 0; j < c->kv.n; j++) results_free(&kept[j]);
}

static double check_cut(uint64_t seed, attn_dtype dtype)
{
    static whole w;
    const double tolerance = dtype == ATTN_F64 ? 1e-13 : 1e-5;
    whole_draw(&w, seed, dtype);
    whole_run(&w, ATTN_FORWARD);
    whole_run(&w, ATTN_BACKWARD);
    sums all = sums_make(&w);
    const cuts c = cuts_draw(&w, 2, 2, CUT_PARTS, CUT_PARTS);
    for (int b = 0; b < c.batch.n; b++)
        for (int h = 0; h < c.heads.n; h++)
            for (int i = 0; i < c.q.n; i++) each_key_part(&w, &c, b, h, i, &all);
    double worst = worse(0, &all, &w, ATTN_FORWARD, tolerance);
    worst = worse(worst, &all, &w, ATTN_BACKWARD, tolerance);
    sums_free(&all);
    whole_free(&w);
    return worst;
}

static void test_cuts(void **state)
{
    double worst[2] = {0, 0};
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        double *most = &worst[seed % 2];
        *most = fmax(*most, check_cut(seed, seed % 2 ? ATTN_F32 : ATTN_F64));
    }
    print_message("parts and whole differ by at most %.3f of the tolerance in f64, %.3f in f32\n", worst[0], worst[1]);
}

/* Parts of batch entries, heads and queries, in one operation, with the same bits as the whole. */
static void check_bits(whole *w, attn_op op, int max_batch, int max_q)
{
    whole_run(w, ATTN_FORWARD);
    if (op != ATTN_FORWARD) whole_run(w, op);
    sums all = sums_make(w);
    const cuts c = cuts_draw(w, max_batch, 2, max_q, 1);
    for (int n = 0; n < c.batch.n * c.heads.n; n++)
        for (int i = 0; i < c.q.n; i++) {
            const part p = cuts_part(&c, n / c.heads.n, n % c.heads.n, i, 0);
            results r = results_make(w, &p);
            part_run(w, &p, op, &r, (flows){0});
            for (int of = 0; of < CUT_RESULTS; of++)
                if (cut_results[of].op == op) sums_add(&all, w, of, &p, &r.of[of]);
            results_free(&r);
        }
    (void)worse(0, &all, w, op, 0);
    sums_free(&all);
}

/* Parts of the batch and of the heads, in every operation. */
static void test_entries(void **state)
{
    static whole w;
    (void)state;
    for (uint64_t seed = 0; seed < CASES(200); seed++) {
        whole_draw(&w, seed, seed % 2 ? ATTN_F32 : ATTN_F64);
        for (int op = ATTN_FORWARD; op <= ATTN_DOUBLE_BACKWARD; op++)
            if (whole_has(&w, (attn_op)op)) check_bits(&w, (attn_op)op, 3, 1);
        whole_free(&w);
    }
}

/* Chunks of queries, in forward with options.invariant where it is supported. */
static void test_chunks(void **state)
{
    static whole w;
    int checked = 0;
    (void)state;
    for (uint64_t seed = 0; seed < CASES(300); seed++) {
        whole_draw(&w, seed, seed % 2 ? ATTN_F32 : ATTN_F64);
        const attn_mask *m = &w.problem.mask;
        w.invariant = 1;
        if (!w.relative_keys.data && m->block_q == 0 && m->dilation <= 1 && m->global_q == 0 && m->global_kv == 0)
            check_bits(&w, ATTN_FORWARD, 2, CUT_PARTS), checked++;
        whole_free(&w);
    }
    assert_true(checked > SEEDS / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts), cmocka_unit_test(test_entries), cmocka_unit_test(test_chunks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
