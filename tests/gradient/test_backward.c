/* SPDX-License-Identifier: MIT
 *
 * test_backward.c - backward against ref/, on 500 random combinations of all options for each compute type: every gradient within
 * the bound on every instruction set, and the same bits for any number of threads.  What no query may see is poisoned.
 */
#include "test.h"

#include "combination/bound.h"
#include "combination/combination.h"

#include <float.h>
#include <math.h>

enum { SEEDS = 500 };

/* The rounding unit; ref/ rounds as much as f64 does. */
static double unit(attn_dtype dtype) { return dtype == ATTN_F32 ? FLT_EPSILON / 2 : DBL_EPSILON; }

/* The outputs of backward; numbers for each head are tensors with one element a head. */
typedef struct gradients {
    tensor q, k, v, bias, slopes, sink, scale;
} gradients;

enum { OUTPUTS = 7 };

static tensor *output(gradients *g, int i)
{
    tensor *all[OUTPUTS] = {&g->q, &g->k, &g->v, &g->bias, &g->slopes, &g->sink, &g->scale};
    return all[i];
}

static gradients outputs(combination *c)
{
    const ref_problem *r = &c->ref;
    attn_problem *p = &c->problem;
    const attn_dtype dtype = c->q.layout.dtype;
    const int64_t *stride = p->bias.bias.stride;
    const int64_t pairs[4] = {r->B, r->Hq, r->Sq, r->Skv},
                  heads[4] = {p->bias.alibi == ATTN_ALIBI_BATCH_HEAD ? r->B : 1, r->Hq, 1, 1};
    const int64_t one[4] = {1, r->Hq, 1, 1};
    int64_t bias[4];
    int dense = stride[0] == 0 && stride[1] == 0 && stride[2] == 0 && stride[3] == 0;
    for (int axis = 0; axis < 4; axis++)
        bias[axis] = !dense && (stride[axis] == 0 || stride[axis] == ATTN_BROADCAST) ? 1 : pairs[axis];
    gradients g = {combination_like(&c->q),
                   combination_like(&c->k),
                   combination_like(&c->v),
                   tensor_make(dtype, bias, BY_HEAD, 0, NULL),
                   tensor_make(dtype, heads, BY_HEAD, 0, NULL),
                   tensor_make(dtype, one, BY_HEAD, 0, NULL),
                   tensor_make(dtype, one, BY_HEAD, 0, NULL)};
    attn_gradients *want = &p->gradients;
    want->lse = want->scale = 1;
    want->bias = p->bias.additive;
    want->slopes = p->bias.alibi != ATTN_ALIBI_NONE;
    want->sink = p->bias.sink;
    want->grad_q = g.q.layout, want->grad_k = g.k.layout, want->grad_v = g.v.layout;
    want->grad_bias.dtype = dtype;
    attn_args *a = &c->args;
    a->grad_q = g.q.memory, a->grad_k = g.k.memory, a->grad_v = g.v.memory, a->grad_bias = g.bias.memory;
    a->grad_slopes = g.slopes.memory, a->grad_sink = g.sink.memory, a->grad_scale = g.scale.memory;
    memset(&p->tangents, 0, sizeof p->tangents);
    return g;
}

static void free_gradients(gradients *g)
{
    for (int i = 0; i < OUTPUTS; i++) tensor_free(output(g, i));
}

static int run(combination *c, gradients *g, attn_isa isa, int threads)
{
    for (int i = 0; i < OUTPUTS; i++) tensor_fill_bytes(output(g, i), 0xff);
    if (!combination_run(c, ATTN_BACKWARD, isa, threads)) return 0;
    for (int i = 0; i < OUTPUTS; i++) tensor_read(output(g, i));
    return 1;
}

/* Adds x [B][Hq][Sq][Skv] up over the axes where `to` has size 1. */
static void reduce(const ref_problem *p, const double *x, const int64_t shape[4], double *to)
{
    for (int64_t i = 0; i < shape[0] * shape[1] * shape[2] * shape[3]; i++) to[i] = 0;
    for (int64_t at = 0; at < p->B * p->Hq * p->Sq * p->Skv; at++) {
        int64_t j = at % p->Skv, i = at / p->Skv % p->Sq, h = at / p->Skv / p->Sq % p->Hq, b = at / p->Skv / p->Sq / p->Hq;
        to[(((shape[0] > 1 ? b : 0) * shape[1] + (shape[1] > 1 ? h : 0)) * shape[2] + (shape[2] > 1 ? i : 0)) * shape[3] +
           (shape[3] > 1 ? j : 0)] += x[at];
    }
}

/* Adds [B][Hq] up over the batch where a slope is shared. */
static void share(const ref_problem *p, const double *x, int64_t entries, double *to)
{
    for (int64_t h = 0; h < entries * p->Hq; h++) to[h] = 0;
    for (int64_t at = 0; at < p->B * p->Hq; at++) to[entries > 1 ? at : at % p->Hq] += x[at];
}

static double *array(int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

typedef struct truth {
    ref_gradients exact;
    bounds bound;
    double *bias, *bias_bound, *slopes, *slopes_bound;
} truth;

static truth truth_of(const combination *c, const gradients *g)
{
    const ref_problem *p = &c->ref;
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv, of_bias = g->bias.count, heads = p->B * p->Hq,
                  of_slopes = g->slopes.count;
    truth t = {{c->grad_o.value, c->grad_lse.value, array(rows * p->D), array(keys * p->D), array(keys * p->Dv),
                array(rows * p->Skv), array(rows * p->Skv), array(p->Hq), array(heads), array(p->Hq)},
               {0},
               array(of_bias),
               array(of_bias),
               array(of_slopes),
               array(of_slopes)};
    const ref_second sizes = {.dO = c->grad_o.value, .dlse = c->grad_lse.value};
    ref_backward(p, &t.exact);
    bounds_make_backward(&t.bound, p, &sizes);
    reduce(p, t.exact.dS, g->bias.shape, t.bias);
    reduce(p, t.bound.bias, g->bias.shape, t.bias_bound);
    share(p, t.exact.dslopes, g->slopes.shape[0], t.slopes);
    share(p, t.bound.slopes, g->slopes.shape[0], t.slopes_bound);
    return t;
}

static void free_truth(truth *t)
{
    double *all[] = {t->exact.dQ,      t->exact.dK,    t->exact.dV, t->exact.P,    t->exact.dS, t->exact.dscale,
                     t->exact.dslopes, t->exact.dsink, t->bias,     t->bias_bound, t->slopes,   t->slopes_bound};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    bounds_free(&t->bound);
}

/* The largest fraction of the bound over all gradients. */
static double worst_of(const combination *c, const gradients *g, const truth *t, double u)
{
    const attn_gradients *want = &c->problem.gradients;
    const struct {
        int wanted;
        const tensor *got;
        const double *exact, *bound;
    } all[OUTPUTS] = {
        {1, &g->q, t->exact.dQ, t->bound.q},
        {1, &g->k, t->exact.dK, t->bound.k},
        {1, &g->v, t->exact.dV, t->bound.v},
        {want->bias, &g->bias, t->bias, t->bias_bound},
        {want->slopes, &g->slopes, t->slopes, t->slopes_bound},
        {want->sink, &g->sink, t->exact.dsink, t->bound.sink},
        {want->scale, &g->scale, t->exact.dscale, t->bound.scale},
    };
    double worst = 0;
    for (int i = 0; i < OUTPUTS; i++) {
        const int64_t *shape = all[i].got->shape;
        if (!all[i].wanted) continue;
        worst = fmax(worst,
                     bound_fraction(all[i].got->value, all[i].exact, all[i].bound, shape[0] * shape[1] * shape[2] * shape[3], u));
    }
    return worst;
}

static double compare(attn_dtype dtype)
{
    double worst = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        combination c;
        combination_draw(&c, (uint64_t)seed + 5000, dtype, 0);
        gradients g = outputs(&c);
        truth t = truth_of(&c, &g);
        for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_AVX512; isa++) {
            if (!combination_forward(&c, (attn_isa)isa) || !run(&c, &g, (attn_isa)isa, 1)) continue;
            double fraction = worst_of(&c, &g, &t, unit(dtype));
            if (!(fraction < 1))
                fail_msg("seed %d, %s on %s: %g of the bound", seed, c.text, attn_isa_name((attn_isa)isa), fraction);
            worst = fmax(worst, fraction);
        }
        free_truth(&t);
        free_gradients(&g);
        combination_free(&c);
    }
    print_message("backward in %s: at most %.3f of the bound\n", attn_dtype_name(dtype), worst);
    return worst;
}

static void test_f32(void **state)
{
    (void)state;
    assert_true(compare(ATTN_F32) > 0.01); /* a bound that is never approached tells nothing */
}

static void test_f64(void **state)
{
    (void)state;
    assert_true(compare(ATTN_F64) > 0.01);
}

static void test_same_bits(void **state)
{
    static const int crews[] = {2, 3, 5, 8};
    (void)state;
    for (int seed = 0; seed < SEEDS; seed += 3) {
        combination c;
        combination_draw(&c, (uint64_t)seed + 5000, seed % 2 ? ATTN_F32 : ATTN_F64, 0);
        gradients one = outputs(&c);
        assert_true(combination_forward(&c, ATTN_ISA_DEFAULT) && run(&c, &one, ATTN_ISA_DEFAULT, 1));
        gradients more = outputs(&c);
        for (size_t n = 0; n < sizeof crews / sizeof *crews; n++) {
            (void)run(&c, &more, ATTN_ISA_DEFAULT, crews[n]);
            for (int i = 0; i < OUTPUTS; i++)
                if (memcmp(output(&one, i)->memory, output(&more, i)->memory,
                           (size_t)output(&one, i)->count * attn_dtype_size(c.q.layout.dtype)) != 0)
                    fail_msg("seed %d, %s: output %d has other bits with %d threads", seed, c.text, i, crews[n]);
        }
        free_gradients(&one);
        free_gradients(&more);
        combination_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_f32), cmocka_unit_test(test_f64), cmocka_unit_test(test_same_bits)};
#if defined(__SANITIZE_THREAD__)
    cmocka_set_test_filter("test_same_bits"); /* the others have one thread */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
