/* SPDX-License-Identifier: MIT
 *
 * test_origin.c - a part of a problem, with its origin, is computed as it is in the whole: any cut of batch entries, heads, queries
 * and keys, with results over disjoint keys merged, sees the same keys, draws the same dropout and has the same distances as one
 * call, forward and backward. */
#include "cut.h"

#include "attn/merge.h"

#include <math.h>

enum { SEEDS = CASES(400), PARTS = 4 };

/* Sums over parts, of the whole's shapes. */
typedef struct merged {
    double *o, *lse, *grad_q, *grad_k, *grad_v;
} merged;

static double *sums(const array *a)
{
    double *x = calloc((size_t)(a->shape[0] * a->shape[1] * a->shape[2] * a->shape[3]) + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static int64_t at(const array *a, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return b * a->stride[0] + h * a->stride[1] + i * a->stride[2] + c;
}

/* Adds an array of a part to the sums of the whole one. */
static void add(double *sum, const array *of, const array *x, int64_t b0, int64_t h0, int64_t i0)
{
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t h = 0; h < x->shape[1]; h++)
            for (int64_t i = 0; i < x->shape[2]; i++)
                for (int64_t c = 0; c < x->shape[3]; c++) sum[at(of, b0 + b, h0 + h, i0 + i, c)] += array_at(x, b, h, i, c);
}

static attn_input slot_of(const array *a)
{
    attn_input slot = attn_in(a->data);
    slot.dtype = a->dtype;
    return slot;
}

/* Results of the same queries over the parts of the keys, by attn_merge. */
static void merge(const whole *w, merged *m, const part *p, const results *r, int parts)
{
    const int64_t h0 = p->head * (w->problem.shape.heads_q / w->problem.shape.heads_kv);
    const int64_t *shape = r[0].o.shape;
    attn_merge_problem problem = {
        .struct_size = sizeof problem, .parts = parts, .batch = shape[0], .heads = shape[1], .len_q = shape[2], .dim_v = shape[3]};
    attn_input o_parts[PARTS], lse_parts[PARTS];
    attn_merge_tensors t = {.struct_size = sizeof t, .o_parts = o_parts, .lse_parts = lse_parts};
    attn_error error;
    results into = results_make(w, p);
    for (int n = 0; n < parts; n++) o_parts[n] = slot_of(&r[n].o), lse_parts[n] = slot_of(&r[n].lse);
    t.o = attn_out(into.o.data), t.lse = attn_out(into.lse.data);
    t.o.dtype = into.o.dtype, t.lse.dtype = into.lse.dtype;
    if (attn_merge(&problem, &t, NULL, &error) != ATTN_OK) fail_msg("%s: %s", w->text, error.message);
    add(m->o, &w->o, &into.o, p->batch, h0, p->q);
    add(m->lse, &w->lse, &into.lse, p->batch, h0, p->q);
    results_free(&into);
}

/* Where 0 .. size is cut, at multiples of a number: n+1 numbers that rise. */
static int cuts(random_source *random, int64_t size, int most, int64_t multiple, int64_t at_cut[PARTS + 1])
{
    int n = 0;
    at_cut[0] = 0;
    const int parts = 1 + (int)random_below(random, most);
    for (int i = 1; i < parts; i++) {
        const int64_t x = at_cut[n] + multiple * (1 + random_below(random, size / multiple + 1));
        if (x < size) at_cut[++n] = x;
    }
    at_cut[n + 1] = size;
    return n + 1;
}

static double compare(const whole *w, const char *name, const array *exact, const double *got, double tolerance)
{
    double worst = 0;
    for (int64_t b = 0; b < exact->shape[0]; b++)
        for (int64_t h = 0; h < exact->shape[1]; h++)
            for (int64_t i = 0; i < exact->shape[2]; i++)
                for (int64_t c = 0; c < exact->shape[3]; c++) {
                    const double x = got[at(exact, b, h, i, c)], y = array_at(exact, b, h, i, c);
                    if (x == y) continue; /* infinities too */
                    const double off = fabs(x - y) / (tolerance * (1 + fabs(y)));
                    if (!(off <= 1))
                        fail_msg("%s: %s[%d, %d, %d, %d] of parts is %.9g, and %.9g in the whole", w->text, name, (int)b, (int)h,
                                 (int)i, (int)c, x, y);
                    worst = fmax(worst, off);
                }
    return worst;
}

static void check_keep(const whole *w, const part *p, const results *r)
{
    const int64_t h0 = p->head * (w->problem.shape.heads_q / w->problem.shape.heads_kv);
    if (w->problem.dropout.probability == 0) return;
    for (int64_t b = 0; b < r->keep.shape[0]; b++)
        for (int64_t h = 0; h < r->keep.shape[1]; h++)
            for (int64_t i = 0; i < r->keep.shape[2]; i++)
                for (int64_t j = 0; j < r->keep.shape[3]; j++)
                    if (array_at(&r->keep, b, h, i, j) != array_at(&w->keep, p->batch + b, h0 + h, p->q + i, p->kv + j))
                        fail_msg("%s: dropout of head %d, query %d, key %d differs", w->text, (int)(h0 + h), (int)(p->q + i),
                                 (int)(p->kv + j));
}

static void each_part(whole *w, merged *m)
{
    const attn_shape *s = &w->problem.shape;
    const int64_t group = s->heads_q / s->heads_kv;
    const int64_t block_q = w->block_mask.data ? w->problem.mask.block_q : 1,
                  block_kv = w->block_mask.data ? w->problem.mask.block_kv : 1;
    int64_t b[PARTS + 1], g[PARTS + 1], q[PARTS + 1], kv[PARTS + 1];
    const int bs = cuts(&w->random, s->batch, 2, 1, b), gs = cuts(&w->random, s->heads_kv, 2, 1, g);
    const int qs = cuts(&w->random, s->len_q, PARTS, block_q, q);
    const int ks = cuts(&w->random, s->len_kv, PARTS, block_kv, kv);
    results kept[PARTS];
    for (int n = 0; n < bs * gs * qs * ks; n++) {
        const int x = n / ks / qs / gs, y = n / ks / qs % gs, i = n / ks % qs, j = n % ks;
        const part p = {b[x], b[x + 1] - b[x], g[y], g[y + 1] - g[y], q[i], q[i + 1] - q[i], kv[j], kv[j + 1] - kv[j]};
        results r = results_make(w, &p);
        part_run(w, &p, ATTN_FORWARD, &r);
        check_keep(w, &p, &r);
        part_run(w, &p, ATTN_BACKWARD, &r); /* with o and lse of the whole, as a ring does */
        add(m->grad_q, &w->grad_q, &r.grad_q, p.batch, p.head * group, p.q);
        add(m->grad_k, &w->grad_k, &r.grad_k, p.batch, p.head, p.kv);
        add(m->grad_v, &w->grad_v, &r.grad_v, p.batch, p.head, p.kv);
        kept[j] = r;
        if (j + 1 < ks) continue;
        merge(w, m, &p, kept, ks);
        for (int k = 0; k < ks; k++) results_free(&kept[k]);
    }
}

static double check_seed(uint64_t seed, attn_dtype dtype)
{
    static whole w;
    const double tolerance = dtype == ATTN_F64 ? 1e-13 : 1e-5;
    double worst = 0;
    whole_draw(&w, seed, dtype);
    whole_run(&w, ATTN_FORWARD);
    whole_run(&w, ATTN_BACKWARD);
    merged m = {sums(&w.o), sums(&w.lse), sums(&w.grad_q), sums(&w.grad_k), sums(&w.grad_v)};
    each_part(&w, &m);
    worst = fmax(worst, compare(&w, "o", &w.o, m.o, tolerance));
    worst = fmax(worst, compare(&w, "lse", &w.lse, m.lse, tolerance));
    worst = fmax(worst, compare(&w, "grad_q", &w.grad_q, m.grad_q, tolerance));
    worst = fmax(worst, compare(&w, "grad_k", &w.grad_k, m.grad_k, tolerance));
    worst = fmax(worst, compare(&w, "grad_v", &w.grad_v, m.grad_v, tolerance));
    free(m.o), free(m.lse), free(m.grad_q), free(m.grad_k), free(m.grad_v);
    whole_free(&w);
    return worst;
}

static void test_cuts(void **state)
{
    double worst[2] = {0, 0};
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        double *most = &worst[seed % 2];
        *most = fmax(*most, check_seed(seed, seed % 2 ? ATTN_F32 : ATTN_F64));
    }
    print_message("parts and whole differ by at most %.3f of what they may in f64, %.3f in f32\n", worst[0], worst[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cuts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
