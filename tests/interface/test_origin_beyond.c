/* SPDX-License-Identifier: MIT
 *
 * test_origin_beyond.c - forward mode and double backward of parts, with their origins, recombined by the derivatives of merging,
 * equal those of the whole.  With w_p = exp(lse_p - lse), where attn_merge makes o and lse from o_p and lse_p,
 *
 *      tan_lse      = sum_p w_p tan_lse_p
 *      tan_o        = sum_p w_p (tan_o_p + (tan_lse_p - tan_lse) o_p)
 *      grad_o_p     = w_p grad_o
 *      grad_lse_p   = w_p x_p                                          x_p = grad_o . (o_p - o) + grad_lse
 *      second_q     = sum_p second_q_p + grad_q_p of                   likewise second_k and second_v
 *           grad_o_p   = w_p (tan_lse_p - tan_lse) grad_o
 *           grad_lse_p = w_p ((tan_lse_p - tan_lse) x_p + grad_o . (tan_o_p - tan_o))
 *
 * since the gradient of a part depends on the tangents through its own inputs and through its incoming gradients.
 */
#include "cut/cut.h"

#include "attn/merge.h"

#include <math.h>

enum { SEEDS = CASES(400) };

/* One query row, in all key parts. */
typedef struct line {
    const whole *w;
    const part *p;
    const results *parts, *into;
    int64_t b, h, i;
} line;

static double of_part(const line *x, int n, int result, int64_t c)
{
    return array_at(&x->parts[n].of[result], x->b, x->h, x->i, c);
}
static double merged(const line *x, int result, int64_t c) { return array_at(&x->into->of[result], x->b, x->h, x->i, c); }

static double weight(const line *x, int n)
{
    const double lse = merged(x, CUT_LSE, 0);
    return lse > -INFINITY ? exp(of_part(x, n, CUT_LSE, 0) - lse) : 0;
}

/* Tangents of the merged outputs, from results `o` and `lse` of the parts: those of forward mode or of double backward. */
static void merge_tangents(const line *x, int count, int o, int lse)
{
    double sum = 0;
    for (int n = 0; n < count; n++) sum += weight(x, n) * of_part(x, n, lse, 0);
    array_put(&x->into->of[lse], x->b, x->h, x->i, 0, sum);
    for (int64_t c = 0; c < x->w->problem.shape.dim_v; c++) {
        double tan = 0;
        for (int n = 0; n < count; n++)
            tan += weight(x, n) * (of_part(x, n, o, c) + (of_part(x, n, lse, 0) - sum) * of_part(x, n, CUT_O, c));
        array_put(&x->into->of[o], x->b, x->h, x->i, c, tan);
    }
}

/* The incoming gradients of part n, and their derivatives along the tangents. */
typedef struct gradients {
    array grad_o, grad_lse, change_o, change_lse;
} gradients;

static void flow_into(const line *x, int n, const gradients *g)
{
    const whole *w = x->w;
    const part *p = x->p;
    const int64_t h = p->head * (w->problem.shape.heads_q / w->problem.shape.heads_kv) + x->h;
    const double share = weight(x, n), shift = of_part(x, n, CUT_TAN_LSE, 0) - merged(x, CUT_TAN_LSE, 0);
    double lse = w->grad_lse.data ? array_at(&w->grad_lse, p->batch + x->b, h, p->q + x->i, 0) : 0, change = 0;
    for (int64_t c = 0; c < w->problem.shape.dim_v; c++) {
        const double grad = array_at(&w->grad_o, p->batch + x->b, h, p->q + x->i, c);
        lse += grad * (of_part(x, n, CUT_O, c) - merged(x, CUT_O, c));
        change += grad * (of_part(x, n, CUT_TAN_O, c) - merged(x, CUT_TAN_O, c));
        array_put(&g->grad_o, x->b, x->h, x->i, c, share * grad);
        array_put(&g->change_o, x->b, x->h, x->i, c, share * shift * grad);
    }
    array_put(&g->grad_lse, x->b, x->h, x->i, 0, share * lse);
    array_put(&g->change_lse, x->b, x->h, x->i, 0, share * (shift * lse + change));
}

static array like(const array *a) { return array_make(a->dtype, a->shape[0], a->shape[1], a->shape[2], a->shape[3]); }

#define EACH_ROW(x, o)                                                                                                             \
    for ((x).b = 0; (x).b < (o)->shape[0]; (x).b++)                                                                                \
        for ((x).h = 0; (x).h < (o)->shape[1]; (x).h++)                                                                            \
            for ((x).i = 0; (x).i < (o)->shape[2]; (x).i++)

static void second_of_parts(const whole *w, const cuts *c, int b, int h, int i, results *kept, const results *into, sums *all)
{
    static const int gradient[] = {CUT_GRAD_Q, CUT_GRAD_K, CUT_GRAD_V}, second[] = {CUT_SECOND_Q, CUT_SECOND_K, CUT_SECOND_V};
    const array *o = &into->of[CUT_O], *lse = &into->of[CUT_LSE];
    const gradients g = {like(o), like(lse), like(o), like(lse)};
    for (int j = 0; j < c->kv.n; j++) {
        const part p = cuts_part(c, b, h, i, j);
        results *r = &kept[j];
        line x = {w, &p, kept, into, 0, 0, 0};
        EACH_ROW(x, o) flow_into(&x, j, &g);
        part_run(w, &p, ATTN_DOUBLE_BACKWARD, r, (flows){&r->of[CUT_O], &r->of[CUT_LSE], &g.grad_o, &g.grad_lse});
        part_run(w, &p, ATTN_BACKWARD, r, (flows){&r->of[CUT_O], &r->of[CUT_LSE], &g.change_o, &g.change_lse});
        for (int n = 0; n < 3; n++)
            sums_add(all, w, second[n], &p, &r->of[second[n]]), sums_add(all, w, second[n], &p, &r->of[gradient[n]]);
    }
    free(g.grad_o.data), free(g.grad_lse.data), free(g.change_o.data), free(g.change_lse.data);
}

static void each_key_part(const whole *w, const cuts *c, int b, int h, int i, sums *all)
{
    const int has_second = whole_has(w, ATTN_DOUBLE_BACKWARD);
    results kept[CUT_PARTS];
    part p = {0};
    for (int j = 0; j < c->kv.n; j++) {
        p = cuts_part(c, b, h, i, j);
        kept[j] = results_make(w, &p);
        part_run(w, &p, ATTN_FORWARD, &kept[j], (flows){0});
        part_run(w, &p, ATTN_JVP, &kept[j], (flows){&kept[j].of[CUT_O], &kept[j].of[CUT_LSE], NULL, NULL});
    }
    results into = results_make(w, &p);
    line x = {w, &p, kept, &into, 0, 0, 0};
    parts_merge(w, &p, kept, c->kv.n, &into);
    EACH_ROW(x, &into.of[CUT_O]) merge_tangents(&x, c->kv.n, CUT_TAN_O, CUT_TAN_LSE);
    if (has_second) {
        second_of_parts(w, c, b, h, i, kept, &into, all);
        EACH_ROW(x, &into.of[CUT_O]) merge_tangents(&x, c->kv.n, CUT_SECOND_GRAD_O, CUT_SECOND_GRAD_LSE);
    }
    for (int n = CUT_TAN_O; n <= CUT_SECOND_GRAD_LSE; n++) sums_add(all, w, n, &p, &into.of[n]);
    results_free(&into);
    for (int j = 0; j < c->kv.n; j++) results_free(&kept[j]);
}

static int check_cut(uint64_t seed, attn_dtype dtype, double worst[2])
{
    static whole w;
    const double tolerance = dtype == ATTN_F64 ? 3e-14 : 1e-5;
    whole_draw(&w, seed, dtype);
    const int has = whole_has(&w, ATTN_JVP), has_second = whole_has(&w, ATTN_DOUBLE_BACKWARD);
    if (has) {
        whole_run(&w, ATTN_FORWARD);
        whole_run(&w, ATTN_JVP);
        if (has_second) whole_run(&w, ATTN_DOUBLE_BACKWARD);
        sums all = sums_make(&w);
        const cuts c = cuts_draw(&w, 2, 2, CUT_PARTS, CUT_PARTS);
        for (int b = 0; b < c.batch.n; b++)
            for (int h = 0; h < c.heads.n; h++)
                for (int i = 0; i < c.q.n; i++) each_key_part(&w, &c, b, h, i, &all);
        for (int n = CUT_TAN_O; n < (has_second ? CUT_RESULTS : CUT_SECOND_GRAD_O); n++)
            worst[n >= CUT_SECOND_GRAD_O] = fmax(worst[n >= CUT_SECOND_GRAD_O], sums_compare(&all, &w, n, tolerance));
        sums_free(&all);
    }
    whole_free(&w);
    return has + has_second;
}

static void test_cuts(void **state)
{
    double worst[2][2] = {{0, 0}, {0, 0}};
    int checked = 0;
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) checked += check_cut(seed, seed % 2 ? ATTN_F32 : ATTN_F64, worst[seed % 2]);
    print_message("forward mode and double backward: parts and whole differ by at most %.3f and %.3f of the tolerance in f64, "
                  "%.3f and %.3f in f32\n",
                  worst[0][0], worst[0][1], worst[1][0], worst[1][1]);
    assert_true(checked > SEEDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
