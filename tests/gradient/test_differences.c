/* SPDX-License-Identifier: MIT
 *
 * test_differences.c - backward against central differences of the library's own forward in f64: along a random direction in all
 * inputs and parameters at once, for 500 random combinations of options, and for inputs one by one.
 */
#include "test.h"

#include "combination/combination.h"

#include <math.h>

enum { SEEDS = 500 };

/* <dO, O> + <dlse, lse> of the rows that exist. */
static double loss_of(combination *c)
{
    double loss = 0;
    assert_true(combination_forward(c, ATTN_ISA_DEFAULT));
    tensor_read(&c->o);
    tensor_read(&c->lse);
    for (int64_t i = 0; i < c->ref.B * c->ref.Hq * c->ref.Sq * c->ref.Dv; i++) loss += c->grad_o.value[i] * c->o.value[i];
    for (int64_t i = 0; i < c->ref.B * c->ref.Hq * c->ref.Sq; i++)
        if (isfinite(c->lse.value[i])) loss += c->grad_lse.value[i] * c->lse.value[i];
    return loss;
}

typedef struct input {
    int used;
    tensor *x;
    double *old, *way; /* where it was, and the direction */
} input;

enum { INPUTS = 7 };

static void move(const input *in, double step)
{
    for (int64_t at = 0; at < in->x->count; at++) tensor_set(in->x, at, in->old[at] + step * in->way[at]);
}

static double loss_at(combination *c, const input *in, double step)
{
    for (int i = 0; i < INPUTS; i++)
        if (in[i].used) move(&in[i], step);
    return loss_of(c);
}

/* Fourth order: the error is far below that of rounding. */
static double difference(combination *c, const input *in, double step)
{
    double near = (loss_at(c, in, step) - loss_at(c, in, -step)) / (2 * step);
    double far = (loss_at(c, in, 2 * step) - loss_at(c, in, -2 * step)) / (4 * step);
    return (4 * near - far) / 3;
}

/* only: -1 for all inputs at once, else the one that moves.  Returns 0 if that one is not used. */
static int check(uint64_t seed, int only)
{
    combination c;
    combination_draw(&c, seed, ATTN_F64, 1);
    attn_problem *p = &c.problem;
    attn_gradients *want = &p->gradients;
    attn_args *a = &c.args;
    random_source random = random_from(seed + 77);
    input in[INPUTS] = {{1, &c.q, NULL, NULL},
                        {1, &c.k, NULL, NULL},
                        {1, &c.v, NULL, NULL},
                        {p->bias.additive, &c.bias, NULL, NULL},
                        {p->bias.alibi != ATTN_ALIBI_NONE, &c.slope, NULL, NULL},
                        {p->bias.sink, &c.sink, NULL, NULL},
                        {p->score.scale_kind == ATTN_SCALE_PER_HEAD, &c.scale, NULL, NULL}};
    int any = 0;
    for (int i = 0; i < INPUTS; i++) {
        in[i].used = in[i].used && (only < 0 || only == i);
        any |= in[i].used;
    }
    memset(&p->tangents, 0, sizeof p->tangents);
    tensor q = combination_like(&c.q), k = combination_like(&c.k), v = combination_like(&c.v);
    const int64_t heads = c.ref.Hq, of_slopes = (c.ref.B > 0 ? c.ref.B : 1) * heads;
    double *room = calloc((size_t)(c.bias.count + of_slopes + 2 * heads), sizeof *room);
    assert_non_null(room);
    double *bias = room, *slopes = bias + c.bias.count, *sink = slopes + of_slopes, *scale = sink + heads;
    want->lse = want->scale = 1;
    want->bias = p->bias.additive, want->slopes = p->bias.alibi != ATTN_ALIBI_NONE, want->sink = p->bias.sink;
    memcpy(want->grad_bias.stride, c.bias.layout.stride, sizeof want->grad_bias.stride); /* gradients lie where their inputs do */
    want->grad_q = q.layout, want->grad_k = k.layout, want->grad_v = v.layout;
    a->grad_q = q.memory, a->grad_k = k.memory, a->grad_v = v.memory, a->grad_bias = bias;
    a->grad_slopes = slopes, a->grad_sink = sink, a->grad_scale = scale;
    assert_true(combination_forward(&c, ATTN_ISA_DEFAULT) && combination_run(&c, ATTN_BACKWARD, ATTN_ISA_DEFAULT, 2));

    const double *gradient[INPUTS] = {q.memory, k.memory, v.memory, bias, slopes, sink, scale};
    double expected = 0, size = 0;
    for (int i = 0; i < INPUTS; i++) {
        if (!in[i].used) continue;
        int64_t n = in[i].x->count;
        in[i].old = calloc((size_t)n + 1, sizeof(double)), in[i].way = calloc((size_t)n + 1, sizeof(double));
        assert_true(in[i].old && in[i].way);
        for (int64_t at = 0; at < n; at++) {
            in[i].old[at] = tensor_get(in[i].x, at);
            in[i].way[at] = isfinite(in[i].old[at]) ? random_signed(&random) : 0;
            expected += gradient[i][at] * in[i].way[at];
            size += fabs(gradient[i][at] * in[i].way[at]);
        }
    }
    if (any) {
        double found = difference(&c, in, 1e-4), off = fabs(found - expected);
        if (!(off <= 1e-7 * (1 + size)))
            fail_msg("seed %d, input %d, %s: backward says %.12g, differences %.12g (terms sum to %g)", (int)seed, only, c.text,
                     expected, found, size);
    }
    for (int i = 0; i < INPUTS; i++) free(in[i].old), free(in[i].way);
    tensor_free(&q), tensor_free(&k), tensor_free(&v);
    free(room);
    combination_free(&c);
    return any;
}

static void test_all_at_once(void **state)
{
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) (void)check((uint64_t)seed + 9000, -1);
}

static void test_one_by_one(void **state)
{
    int tried[INPUTS] = {0};
    (void)state;
    for (int seed = 0; seed < 100; seed++)
        for (int i = 0; i < INPUTS; i++) tried[i] += check((uint64_t)seed + 20000, i);
    for (int i = 0; i < INPUTS; i++) assert_true(tried[i] >= 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_at_once), cmocka_unit_test(test_one_by_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
