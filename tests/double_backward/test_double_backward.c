/* SPDX-License-Identifier: MIT
 *
 * test_double_backward.c - double backward on random combinations of all options: against ref/ within the bound, the same bits for
 * any number of threads, and against differences of the library's own first gradients.
 */
#define OPERATION ATTN_DOUBLE_BACKWARD
#include "operation.h"

/* Outputs of the operation, of the library or of ref/. */
enum { GRAD_O, GRAD_LSE, Q, K, V, BIAS, OUTPUTS };
static const char *const names[OUTPUTS] = {"grad_o", "grad_lse", "q", "k", "v", "bias"};
typedef struct derivatives {
    tensor of[OUTPUTS];
} derivatives;

/* A tensor of the shape that the gradient of the bias has: 1 on the axes that the bias broadcasts. */
static tensor like_bias(const combination *c)
{
    int64_t shape[4];
    for (int axis = 0; axis < 4; axis++)
        shape[axis] = c->of[TENSOR(bias)].layout.stride[axis] == ATTN_BROADCAST ? 1 : c->of[TENSOR(bias)].shape[axis];
    return tensor_make(c->of[TENSOR(bias)].layout.dtype, shape, BY_HEAD, 0, NULL);
}

/* Storage for all outputs, to which the slots point; with_lse: grad_lse is an input. */
static derivatives outputs(combination *c, int with_lse)
{
    attn_tensors *t = &c->tensors;
    derivatives out = {{tensor_like(&c->of[TENSOR(o)]),
                        tensor_like(&c->of[TENSOR(lse)]),
                        tensor_like(&c->of[TENSOR(q)]),
                        tensor_like(&c->of[TENSOR(k)]),
                        tensor_like(&c->of[TENSOR(v)]),
                        {{0}, {0}, NULL, 0, NULL, NULL}}};
    if (with_lse) combination_give(c, TENSOR(grad_lse));
    else combination_drop(c, TENSOR(grad_lse));
    if (t->bias.data) out.of[BIAS] = like_bias(c), t->second_bias = slot_of(&out.of[BIAS]);
    t->second_grad_o = slot_of(&out.of[GRAD_O]), t->second_grad_lse = slot_of(&out.of[GRAD_LSE]);
    t->second_q = slot_of(&out.of[Q]), t->second_k = slot_of(&out.of[K]), t->second_v = slot_of(&out.of[V]);
    return out;
}

static void derivatives_free(derivatives *d)
{
    for (int x = 0; x < OUTPUTS; x++) tensor_free(&d->of[x]);
}

static int run(combination *c, derivatives *out, attn_isa isa, int threads)
{
    for (int x = 0; x < OUTPUTS; x++)
        if (out->of[x].memory) tensor_fill_bytes(&out->of[x], 0xff);
    if (!combination_run(c, OPERATION, isa, threads)) return 0;
    for (int x = 0; x < OUTPUTS; x++)
        if (out->of[x].memory) tensor_read(&out->of[x]);
    return 1;
}

static ref_gradgrad inputs(const combination *c)
{
    ref_gradgrad in = {.dO = c->of[TENSOR(grad_o)].value,
                       .dlse = combination_flow(c, TENSOR(grad_lse)),
                       .Qd = combination_flow(c, TENSOR(tan_q)),
                       .Kd = combination_flow(c, TENSOR(tan_k)),
                       .Vd = combination_flow(c, TENSOR(tan_v)),
                       .biasd = combination_flow(c, TENSOR(tan_bias))};
    return in;
}

/* Adds pairs [B][Hq][Sq][Skv] over the axes that the bias broadcasts. */
static void reduce(const combination *c, const double *pairs, tensor *sum)
{
    int64_t at = 0;
    for (int64_t b = 0; b < c->ref.B; b++)
        for (int64_t h = 0; h < c->ref.Hq; h++)
            for (int64_t i = 0; i < c->ref.Sq; i++)
                for (int64_t j = 0; j < c->ref.Skv; j++, at++) {
                    const int64_t *n = sum->shape;
                    sum->value[(((n[0] > 1 ? b : 0) * n[1] + (n[1] > 1 ? h : 0)) * n[2] + (n[2] > 1 ? i : 0)) * n[3] +
                               (n[3] > 1 ? j : 0)] += pairs[at];
                }
}

static int64_t size_of(const tensor *t) { return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3]; }

/* The reference's outputs and their bounds. */
typedef struct expectation {
    derivatives exact, bound;
} expectation;

static expectation expect(const combination *c, const derivatives *like)
{
    expectation e = {0};
    bounds sizes;
    ref_gradgrad s = inputs(c);
    double *S2 = calloc((size_t)(c->ref.B * c->ref.Hq * c->ref.Sq * c->ref.Skv) + 1, sizeof *S2);
    assert_non_null(S2);
    for (int x = 0; x < OUTPUTS; x++)
        if (like->of[x].memory) e.exact.of[x] = tensor_like(&like->of[x]), e.bound.of[x] = tensor_like(&like->of[x]);
    s.dO2 = e.exact.of[GRAD_O].value, s.dlse2 = e.exact.of[GRAD_LSE].value;
    s.Q2 = e.exact.of[Q].value, s.K2 = e.exact.of[K].value, s.V2 = e.exact.of[V].value, s.S2 = S2;
    ref_double_backward(&c->ref, &s);
    bounds_make(&sizes, &c->ref, &s);
    const double *bound[] = {sizes.tan_o, sizes.tan_lse, sizes.q, sizes.k, sizes.v};
    for (int x = 0; x < BIAS; x++) memcpy(e.bound.of[x].value, bound[x], (size_t)size_of(&like->of[x]) * sizeof(double));
    if (like->of[BIAS].memory) reduce(c, S2, &e.exact.of[BIAS]), reduce(c, sizes.bias, &e.bound.of[BIAS]);
    bounds_free(&sizes);
    free(S2);
    return e;
}

/* After a run: the same bits if the tangents of o and lse that it has computed are given. */
static void check_given(combination *c, const derivatives *out, attn_isa isa)
{
    attn_tensors *t = &c->tensors;
    const attn_tensors before = *t;
    derivatives again = {{{{0}, {0}, NULL, 0, NULL, NULL}}};
    for (int x = Q; x < OUTPUTS; x++)
        if (out->of[x].memory) again.of[x] = tensor_like(&out->of[x]);
    t->tan_o = slot_of(&out->of[GRAD_O]), t->tan_lse = slot_of(&out->of[GRAD_LSE]);
    t->second_grad_o = t->second_grad_lse = (attn_output){0};
    t->second_q = slot_of(&again.of[Q]), t->second_k = slot_of(&again.of[K]), t->second_v = slot_of(&again.of[V]);
    if (t->bias.data) t->second_bias = slot_of(&again.of[BIAS]);
    assert_true(run(c, &again, isa, 1));
    for (int x = Q; x < OUTPUTS; x++)
        for (int64_t n = 0; out->of[x].memory && n < size_of(&out->of[x]); n++)
            if (!(again.of[x].value[n] == out->of[x].value[n]))
                fail_msg("%s on %s: second_%s[%d] is %.9g, with given tangents %.9g", c->text, attn_isa_name(isa), names[x], (int)n,
                         out->of[x].value[n], again.of[x].value[n]);
    derivatives_free(&again);
    *t = before;
}

static double fraction(const combination *c, const derivatives *out, const expectation *e, attn_dtype dtype, const char *where)
{
    double worst = 0;
    for (int x = 0; x < OUTPUTS; x++) {
        if (!out->of[x].memory) continue;
        const double f =
            bound_fraction(out->of[x].value, e->exact.of[x].value, e->bound.of[x].value, size_of(&out->of[x]), unit(dtype));
        if (!(f < 1)) fail_msg("%s on %s: second_%s is %g of the bound", c->text, where, names[x], f);
        worst = fmax(worst, f);
    }
    return worst;
}

/* The largest fraction of the bound over all outputs. */
static double compare(attn_dtype dtype)
{
    double worst = 0;
    for (int seed = 0; seed < SEEDS; seed++) {
        combination c;
        combination_draw(&c, (uint64_t)seed, dtype, 0);
        derivatives out = outputs(&c, seed % 3 > 0);
        expectation e = expect(&c, &out);
        for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
            if (!combination_forward(&c, (attn_isa)isa) || !run(&c, &out, (attn_isa)isa, 1)) continue;
            worst = fmax(worst, fraction(&c, &out, &e, dtype, attn_isa_name((attn_isa)isa)));
            check_given(&c, &out, (attn_isa)isa);
        }
        derivatives_free(&out), derivatives_free(&e.exact), derivatives_free(&e.bound);
        combination_free(&c);
    }
    print_message("double backward in %s: at most %.3f of the bound\n", attn_dtype_name(dtype), worst);
    return worst;
}

/* ---- differences of first gradients ---- */

static double inner(const tensor *gradient, const tensor *x)
{
    double sum = 0;
    for (int64_t i = 0; i < size_of(x); i++) sum += gradient->value[i] * x->value[i];
    return sum;
}

/* The library's <dQ, tan_q> + <dK, tan_k> + <dV, tan_v>, from forward and backward at the current inputs. */
static double phi(combination *c)
{
    tensor q = tensor_like(&c->of[TENSOR(q)]), k = tensor_like(&c->of[TENSOR(k)]), v = tensor_like(&c->of[TENSOR(v)]);
    attn_tensors *t = &c->tensors;
    assert_true(combination_forward(c, ATTN_ISA_DEFAULT));
    t->grad_q = slot_of(&q), t->grad_k = slot_of(&k), t->grad_v = slot_of(&v);
    (void)combination_run(c, ATTN_BACKWARD, ATTN_ISA_DEFAULT, 1);
    tensor_read(&q), tensor_read(&k), tensor_read(&v);
    double sum = 0;
    if (t->tan_q.data) sum += inner(&q, &c->of[TENSOR(tan_q)]);
    if (t->tan_k.data) sum += inner(&k, &c->of[TENSOR(tan_k)]);
    if (t->tan_v.data) sum += inner(&v, &c->of[TENSOR(tan_v)]);
    tensor_free(&q), tensor_free(&k), tensor_free(&v);
    t->grad_q = t->grad_k = t->grad_v = (attn_output){0};
    return sum;
}

static void move(tensor *x, const tensor *direction, double step)
{
    for (int64_t i = 0; i < x->count; i++) tensor_set(x, i, tensor_get(x, i) + step * tensor_get(direction, i));
}

static void test_differences(void **state)
{
    const double step = 1e-5, tolerance = 2e-8;
    (void)state;
    for (int seed = 0; seed < SEEDS; seed++) {
        combination c;
        combination_draw(&c, (uint64_t)seed + 2000, ATTN_F64, FINITE);
        derivatives out = outputs(&c, 1);
        combination_drop(&c, TENSOR(tan_bias)); /* grad_bias is of elements of the bias, tan_bias of scores */
        assert_true(combination_forward(&c, ATTN_ISA_DEFAULT) && run(&c, &out, ATTN_ISA_DEFAULT, 2));
        tensor *moved[BIAS] = {&c.of[TENSOR(grad_o)], &c.of[TENSOR(grad_lse)], &c.of[TENSOR(q)], &c.of[TENSOR(k)],
                               &c.of[TENSOR(v)]};
        random_state random = random_from((uint64_t)seed);
        for (int x = 0; x < BIAS; x++) {
            tensor direction = tensor_like(moved[x]);
            tensor_draw(&direction, &random, 1);
            double size = 0, exact = inner(&out.of[x], &direction);
            for (int64_t i = 0; i < size_of(&direction); i++) size += fabs(out.of[x].value[i] * direction.value[i]);
            move(moved[x], &direction, step);
            double above = phi(&c);
            move(moved[x], &direction, -2 * step);
            double difference = (above - phi(&c)) / (2 * step);
            move(moved[x], &direction, step);
            if (!(fabs(difference - exact) <= tolerance * (1 + size + fabs(above))))
                fail_msg("%s: second_%s gives %.12g, differences %.12g, of %g", c.text, names[x], exact, difference, size);
            tensor_free(&direction);
        }
        derivatives_free(&out);
        combination_free(&c);
    }
}

int main(void) { return operation_main((struct CMUnitTest)cmocka_unit_test(test_differences)); }
