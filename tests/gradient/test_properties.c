/* SPDX-License-Identifier: MIT
 *
 * test_properties.c - mathematical properties of attention's gradients, P12 and P27 to P35, on random combinations of the options
 * under which each holds.  Sums that must be equal may differ by the error bounds of their terms.
 */
#include "test.h"

#include "combination/outcome.h"
#include "testing/random/share.h"

#include <math.h>

enum { SEEDS = CASES(120) };

static const attn_dtype types[] = {ATTN_F32, ATTN_F64};

static outcome backward(combination *c)
{
    outcome out = outcome_make(c, ATTN_BACKWARD);
    assert_true(outcome_run(c, &out, ATTN_ISA_DEFAULT, 1));
    return out;
}

static const output *gradient(const outcome *out, const char *name)
{
    const output *found = outcome_find(out, name);
    assert_non_null(found);
    return found;
}

static void zero(tensor *t)
{
    tensor_fill_bytes(t, 0);
    tensor_read(t);
}

static void assert_near(const combination *c, const char *what, double x, double y, double allowed)
{
    if (!(fabs(x - y) <= allowed))
        fail_msg("%s: %s: %.17g is not %.17g, off by %g of %g", c->text, what, x, y, fabs(x - y), allowed);
}

static int sees_any(const combination *c, int64_t b, int64_t h, int64_t i)
{
    for (int64_t j = 0; j < c->ref.Skv; j++)
        if (ref_visible(&c->ref, b, h, i, j)) return 1;
    return 0;
}

/* For random combinations without the words in `but`, in both types. */
#define FOR_COMBINATIONS(c, but)                                                                                                   \
    for (int n_of_##c = 0; n_of_##c < share_of_cases(2 * SEEDS); n_of_##c++)                                                       \
        for (int once_##c = draw_without(&(c), n_of_##c, but); once_##c; once_##c = 0, combination_free(&(c)))

enum { SINK = 1, SOFTCAP = 2, DROPOUT = 4, UNIFORM = 8 };

static int draw_without(combination *c, int n, int but)
{
    problem_spec spec;
    random_problem(&spec, (uint64_t)n / 2 + 31000, types[n % 2]);
    if (but & SINK) spec.sink = 0;
    if (but & SOFTCAP) spec.softcap = 0;
    if (but & DROPOUT) spec.dropout = 0;
    if (but & UNIFORM) spec.empty = SPEC_EMPTY_ZERO;
    combination_of(c, &spec, FINITE | MORE);
    return 1;
}

/* Expands the bias to one element per score, so that its gradient is dS. */
static void expand_bias(combination *c)
{
    const int64_t pairs[4] = {c->ref.B, c->ref.Hq, c->ref.Sq, c->ref.Skv};
    tensor bias = tensor_make(combination_compute(c), pairs, BY_HEAD, 0, NULL);
    for (int64_t at = 0; c->ref.bias && at < bias.count; at++) tensor_set(&bias, at, c->ref.bias[at]);
    tensor_read(&bias);
    tensor_free(&c->of[TENSOR(bias)]);
    c->of[TENSOR(bias)] = bias;
    combination_give(c, TENSOR(bias));
    c->ref.bias = bias.value;
}

/* sum_j dS_ij = 0, or dlse_i with a gradient through lse. */
static void p27_scores(void **state)
{
    combination c;
    (void)state;
    FOR_COMBINATIONS(c, SINK)
    {
        const ref_problem *p = &c.ref;
        expand_bias(&c);
        outcome out = backward(&c);
        const output *dS = gradient(&out, "grad_bias");
        for (int64_t row = 0; row < p->B * p->Hq * p->Sq; row++) {
            double sum = 0, allowed = 0;
            for (int64_t j = 0; j < p->Skv; j++) {
                sum += dS->got.value[row * p->Skv + j];
                allowed += out.unit * dS->bound[row * p->Skv + j];
            }
            int any = sees_any(&c, row / p->Sq / p->Hq, row / p->Sq % p->Hq, row % p->Sq);
            assert_near(&c, "sum of dS", sum, any ? c.of[TENSOR(grad_lse)].value[row] : 0, allowed);
        }
        outcome_free(&c, &out);
    }
}

/* Sums one channel of a key or value gradient, and its bounds, over the keys of a head. */
static void sum_keys(const output *d, double u, int64_t of_head, int64_t channel, double *sum, double *allowed)
{
    const int64_t len = d->got.shape[2], dim = d->got.shape[3];
    *sum = *allowed = 0;
    for (int64_t j = 0; j < len; j++) {
        *sum += d->got.value[(of_head * len + j) * dim + channel];
        *allowed += u * d->bound[(of_head * len + j) * dim + channel];
    }
}

/* Adding one vector to all keys changes nothing, so sum_j dK_j = 0. */
static void p28_keys(void **state)
{
    combination c;
    (void)state;
    FOR_COMBINATIONS(c, SINK | SOFTCAP)
    {
        zero(&c.of[TENSOR(grad_lse)]);
        outcome out = backward(&c);
        const output *dK = gradient(&out, "grad_k");
        for (int64_t at = 0; at < c.ref.B * c.ref.Hkv * c.ref.D; at++) {
            double sum, allowed;
            sum_keys(dK, out.unit, at / c.ref.D, at % c.ref.D, &sum, &allowed);
            assert_near(&c, "sum of dK", sum, 0, allowed);
        }
        outcome_free(&c, &out);
    }
}

/* Weights sum to 1, so sum_j dV_j is the sum of dO_i over the rows that see a key. */
static void p29_values(void **state)
{
    combination c;
    (void)state;
    FOR_COMBINATIONS(c, SINK | DROPOUT | UNIFORM)
    {
        outcome out = backward(&c);
        const output *dV = gradient(&out, "grad_v");
        const int64_t group = c.ref.Hq / c.ref.Hkv, Dv = c.ref.Dv;
        for (int64_t at = 0; at < c.ref.B * c.ref.Hkv * Dv; at++) {
            const int64_t b = at / Dv / c.ref.Hkv, g = at / Dv % c.ref.Hkv;
            double sum, allowed, flows = 0;
            sum_keys(dV, out.unit, at / Dv, at % Dv, &sum, &allowed);
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                for (int64_t i = 0; i < c.ref.Sq; i++)
                    if (sees_any(&c, b, h, i))
                        flows += c.of[TENSOR(grad_o)].value[((b * c.ref.Hq + h) * c.ref.Sq + i) * Dv + at % Dv];
            assert_near(&c, "sum of dV", sum, flows, allowed);
        }
        outcome_free(&c, &out);
    }
}

/* t = factor * from, rounded to multiples of 1/256, so that sums of two are exact. */
static void set_multiple(tensor *t, const double *from, double factor)
{
    for (int64_t at = 0; at < t->count; at++) tensor_set(t, at, factor * floor(from[at] * 256) / 256);
    tensor_read(t);
}

static double *elements(const tensor *t)
{
    double *x = calloc((size_t)t->count + 1, sizeof *x);
    assert_non_null(x);
    for (int64_t at = 0; at < t->count; at++) x[at] = tensor_get(t, at);
    return x;
}

/* Linear in dO and dlse: doubling them changes only exponents, and gradients of a sum are sums. */
static void p30_linear(void **state)
{
    combination c;
    (void)state;
    FOR_COMBINATIONS(c, 0)
    {
        random_state random = random_from((uint64_t)n_of_c);
        double *dO = elements(&c.of[TENSOR(grad_o)]), *dlse = elements(&c.of[TENSOR(grad_lse)]),
               *more = elements(&c.of[TENSOR(grad_o)]);
        outcome of[4];
        for (int64_t at = 0; at < c.of[TENSOR(grad_o)].count; at++) more[at] = random_signed(&random);
        for (int n = 0; n < 4; n++) {
            set_multiple(&c.of[TENSOR(grad_o)], n == 2 ? more : dO, n == 1 ? 2 : 1);
            set_multiple(&c.of[TENSOR(grad_lse)], dlse, n == 1 ? 2 : n == 2 ? 0 : 1);
            for (int64_t at = 0; n == 3 && at < c.of[TENSOR(grad_o)].count; at++)
                tensor_set(&c.of[TENSOR(grad_o)], at, tensor_get(&c.of[TENSOR(grad_o)], at) + floor(more[at] * 256) / 256);
            tensor_read(&c.of[TENSOR(grad_o)]);
            of[n] = backward(&c);
        }
        for (int x = 0; x < of[0].count; x++) {
            const int64_t *shape = of[0].of[x].got.shape;
            for (int64_t i = 0; i < shape[0] * shape[1] * shape[2] * shape[3]; i++) {
                const double one = of[0].of[x].got.value[i], other = of[2].of[x].got.value[i];
                double allowed = of[0].of[x].bound[i] + of[2].of[x].bound[i] + of[3].of[x].bound[i];
                assert_near(&c, of[0].of[x].name, of[1].of[x].got.value[i], 2 * one, 0);
                assert_near(&c, of[0].of[x].name, of[3].of[x].got.value[i], one + other, of[0].unit * allowed);
            }
        }
        for (int n = 0; n < 4; n++) outcome_free(&c, &of[n]);
        free(dO), free(dlse), free(more);
    }
}

/* The library's own weights, before or after dropout. */
static double *weights(combination *c, int after)
{
    const int64_t n = c->ref.B * c->ref.Hq * c->ref.Sq * c->ref.Skv;
    const attn_dtype dtype = combination_compute(c);
    void *memory = calloc((size_t)n + 1, sizeof(double));
    double *w = calloc((size_t)n + 1, sizeof *w);
    assert_true(memory && w);
    c->problem.outputs.after_dropout = after;
    c->tensors.weights = attn_out(memory);
    combination_give(c, TENSOR(o)), combination_give(c, TENSOR(lse));
    assert_true(combination_run(c, ATTN_FORWARD, ATTN_ISA_DEFAULT, 1));
    c->problem.outputs.after_dropout = 0;
    c->tensors.weights = (attn_output){0};
    (void)attn_convert(n, memory, dtype, w, ATTN_F64, NULL);
    free(memory);
    return w;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += x[c] * y[c];
    return sum;
}

/* sum_j P~_ij dP~_ij = dO_i . O_i, also after dropout (P31), and the chain dV = P~^T dO, dP = dO V^T, dS = P~ dP - P D, dQ = dS K,
 * dK = dS^T Q from the library's weights is its backward (P35). */
static void p31_p35_pieces(void **state)
{
    combination c;
    (void)state;
    FOR_COMBINATIONS(c, SOFTCAP | UNIFORM)
    {
        const ref_problem *p = &c.ref;
        const int64_t D = p->D, Dv = p->Dv, group = p->Hq / p->Hkv;
        double *P = weights(&c, 0), *W = weights(&c, 1);
        outcome forward = outcome_make(&c, ATTN_FORWARD);
        assert_true(outcome_run(&c, &forward, ATTN_ISA_DEFAULT, 1));
        const output *O = gradient(&forward, "o");
        double *dQ = calloc((size_t)(p->B * p->Hq * p->Sq * D) + 1, sizeof *dQ),
               *dK = calloc((size_t)(p->B * p->Hkv * p->Skv * D) + 1, sizeof *dK),
               *dV = calloc((size_t)(p->B * p->Hkv * p->Skv * Dv) + 1, sizeof *dV);
        assert_true(dQ && dK && dV);
        for (int64_t row = 0; row < p->B * p->Hq * p->Sq; row++) {
            const int64_t h = row / p->Sq % p->Hq, key_head = row / p->Sq / p->Hq * p->Hkv + h / group;
            const double *dO = c.of[TENSOR(grad_o)].value + row * Dv, *V = p->V + key_head * p->Skv * Dv,
                         *K = p->K + key_head * p->Skv * D;
            double scale = (p->scale_of_head ? p->scale_of_head[h] : p->scale) / p->temperature;
            double sum = 0, allowed = 0, delta = dot(dO, O->got.value + row * Dv, Dv);
            for (int64_t x = 0; x < Dv; x++) allowed += 2 * forward.unit * fabs(dO[x]) * O->bound[row * Dv + x];
            for (int64_t j = 0; j < p->Skv; j++) sum += W[row * p->Skv + j] * dot(dO, V + j * Dv, Dv);
            assert_near(&c, "delta", sum, delta, allowed);
            for (int64_t j = 0; j < p->Skv; j++) {
                const double w = W[row * p->Skv + j], weight = P[row * p->Skv + j];
                const double dS = w * dot(dO, V + j * Dv, Dv) - weight * (delta - c.of[TENSOR(grad_lse)].value[row]);
                for (int64_t x = 0; x < Dv; x++) dV[(key_head * p->Skv + j) * Dv + x] += w * dO[x];
                for (int64_t x = 0; x < D; x++) dQ[row * D + x] += scale * dS * K[j * D + x];
                for (int64_t x = 0; x < D; x++) dK[(key_head * p->Skv + j) * D + x] += scale * dS * p->Q[row * D + x];
            }
        }
        outcome out = backward(&c);
        const double *chain[] = {dQ, dK, dV};
        static const char *const names[] = {"grad_q", "grad_k", "grad_v"};
        for (int n = 0; n < 3; n++) {
            const output *fused = gradient(&out, names[n]);
            const int64_t *shape = fused->got.shape;
            for (int64_t i = 0; i < shape[0] * shape[1] * shape[2] * shape[3]; i++)
                assert_near(&c, names[n], fused->got.value[i], chain[n][i], 2 * out.unit * fused->bound[i]);
        }
        outcome_free(&c, &out);
        outcome_free(&c, &forward);
        free(P), free(W), free(dQ), free(dK), free(dV);
    }
}

/* If all values have the same sum over channels and dO is 1 everywhere, the loss does not depend on the weights: dQ = dK = 0. */
static void p33_constant(void **state)
{
    combination c;
    (void)state;
    FOR_COMBINATIONS(c, SINK | DROPOUT)
    {
        const int64_t *n = c.of[TENSOR(v)].shape;
        zero(&c.of[TENSOR(grad_lse)]);
        for (int64_t at = 0; at < c.of[TENSOR(grad_o)].count; at++) tensor_set(&c.of[TENSOR(grad_o)], at, 1);
        tensor_read(&c.of[TENSOR(grad_o)]);
        for (int64_t row = 0; row < n[0] * n[1] * n[2] && n[3] > 0; row++) {
            const int64_t b = row / n[2] / n[1], g = row / n[2] % n[1], j = row % n[2];
            double last = 3;
            if (!tensor_has(&c.of[TENSOR(v)], b, j)) continue;
            for (int64_t x = 0; x < n[3]; x++) {
                const int64_t at = tensor_at(&c.of[TENSOR(v)], b, g, j, x);
                const double value = x < n[3] - 1 ? floor(tensor_get(&c.of[TENSOR(v)], at) * 1024) / 1024 : last;
                tensor_set(&c.of[TENSOR(v)], at, value);
                last -= value;
            }
        }
        tensor_read(&c.of[TENSOR(v)]);
        outcome out = backward(&c);
        const output *d[] = {gradient(&out, "grad_q"), gradient(&out, "grad_k")};
        for (int x = 0; x < 2; x++)
            for (int64_t i = 0; i < d[x]->got.shape[0] * d[x]->got.shape[1] * d[x]->got.shape[2] * d[x]->got.shape[3]; i++)
                assert_near(&c, d[x]->name, d[x]->got.value[i], 0, out.unit * d[x]->bound[i]);
        outcome_free(&c, &out);
    }
}

/* t with every head repeated `times` times. */
static tensor repeat_heads(const tensor *t, int64_t times)
{
    const int64_t shape[4] = {t->shape[0], t->shape[1] * times, t->shape[2], t->shape[3]};
    tensor made = tensor_make(t->layout.dtype, shape, BY_HEAD, 0, t->start);
    for (int64_t b = 0; b < shape[0]; b++)
        for (int64_t h = 0; h < shape[1]; h++)
            for (int64_t j = 0; j < shape[2]; j++)
                for (int64_t x = 0; x < shape[3] && tensor_has(t, b, j); x++)
                    tensor_set(&made, tensor_at(&made, b, h, j, x), tensor_get(t, tensor_at(t, b, h / times, j, x)));
    tensor_read(&made);
    return made;
}

/* The gradient of a key head is the sum of the gradients with one copy of it for each query head. */
static void p34_groups(void **state)
{
    combination c;
    (void)state;
    FOR_COMBINATIONS(c, 0)
    {
        const int64_t group = c.ref.Hq / c.ref.Hkv, Hkv = c.ref.Hkv;
        outcome shared = backward(&c);
        tensor k = repeat_heads(&c.of[TENSOR(k)], group), v = repeat_heads(&c.of[TENSOR(v)], group), old_k = c.of[TENSOR(k)],
               old_v = c.of[TENSOR(v)];
        c.of[TENSOR(k)] = k, c.of[TENSOR(v)] = v;
        combination_give(&c, TENSOR(k)), combination_give(&c, TENSOR(v));
        c.problem.shape.heads_kv = c.ref.Hkv = c.ref.Hq;
        c.ref.K = k.value, c.ref.V = v.value;
        outcome each = backward(&c);
        static const char *const names[] = {"grad_k", "grad_v"};
        for (int n = 0; n < 2; n++) {
            const output *one = gradient(&shared, names[n]), *many = gradient(&each, names[n]);
            const int64_t of_head = one->got.shape[2] * one->got.shape[3];
            for (int64_t at = 0; at < c.ref.B * Hkv * of_head; at++) {
                double sum = 0, allowed = one->bound[at];
                for (int64_t h = 0; h < group; h++) {
                    const int64_t from = (at / of_head * group + h) * of_head + at % of_head;
                    sum += many->got.value[from];
                    allowed += many->bound[from];
                }
                assert_near(&c, names[n], one->got.value[at], sum, shared.unit * allowed);
            }
        }
        outcome_free(&c, &each);
        tensor_free(&old_k), tensor_free(&old_v);
        outcome_free(&c, &shared);
    }
}

/* If the weights are 0 and 1, no gradient passes the softmax; at a higher temperature it does (row 4.18). */
static void soft_limit(void **state)
{
    double sum[2] = {0, 0};
    (void)state;
    for (int warm = 0; warm < 2; warm++) {
        combination c;
        combination_parse(&c, warm ? "f64:hq2:sq9:skv11:d6:dv5:scale=3000:temperature=3000" : "f64:hq2:sq9:skv11:d6:dv5:scale=3000",
                          FINITE);
        zero(&c.of[TENSOR(grad_lse)]);
        expand_bias(&c);
        outcome out = backward(&c);
        const output *dS = gradient(&out, "grad_bias");
        for (int64_t at = 0; at < dS->got.count; at++) sum[warm] += fabs(dS->got.value[at]);
        outcome_free(&c, &out);
        combination_free(&c);
    }
    assert_true(sum[0] < 1e-9);
    assert_true(sum[1] > 1);
}

/* ---- P12: causality, in both directions ---- */

typedef struct rows {
    tensor *t;
    int64_t from, to; /* range of tokens to change */
} rows;

static void redraw(const rows *r, random_state *random)
{
    for (int64_t b = 0; b < r->t->shape[0]; b++)
        for (int64_t h = 0; h < r->t->shape[1]; h++)
            for (int64_t i = r->from; i < r->to; i++)
                for (int64_t x = 0; x < r->t->shape[3]; x++)
                    tensor_set(r->t, tensor_at(r->t, b, h, i, x), 4 * random_signed(random));
    tensor_read(r->t);
}

/* Tokens from .. to-1 of this gradient have the same bits in both outcomes. */
static void assert_same_tokens(const combination *c, const outcome *one, const outcome *other, const char *name, int64_t from,
                               int64_t to)
{
    const tensor *x = &gradient(one, name)->got, *y = &gradient(other, name)->got;
    for (int64_t head = 0; head < x->shape[0] * x->shape[1]; head++)
        for (int64_t at = (head * x->shape[2] + from) * x->shape[3]; at < (head * x->shape[2] + to) * x->shape[3]; at++)
            assert_near(c, name, x->value[at], y->value[at], 0);
}

static void p12_no_leak(void **state)
{
    enum { LENGTH = 70, CUT = 33 };
    (void)state;
    for (int n = 0; n < 6; n++) {
        const int64_t offset = (const int64_t[]){0, 5, -5}[n / 2],
                      key = CUT + offset; /* the first key that no row before CUT sees */
        char text[100];
        combination c;
        random_state random = random_from((uint64_t)n);
        (void)snprintf(text, sizeof text, "%s:b2:hq4:hkv2:sq%d:d8:dv6:causal:offset=%d:seed=%d", n % 2 ? "f64" : "f32", (int)LENGTH,
                       (int)offset, n);
        combination_parse(&c, text, FINITE);
        outcome before = backward(&c);
        const rows future[] = {{&c.of[TENSOR(k)], key, LENGTH}, {&c.of[TENSOR(v)], key, LENGTH}},
                   past[] = {{&c.of[TENSOR(q)], 0, CUT}, {&c.of[TENSOR(grad_o)], 0, CUT}};

        for (int x = 0; x < 2; x++) redraw(&future[x], &random); /* future keys: invisible to past queries */
        outcome other_keys = backward(&c);
        assert_same_tokens(&c, &before, &other_keys, "grad_q", 0, CUT);

        for (int x = 0; x < 2; x++) redraw(&past[x], &random); /* past queries: no gradient reaches future keys */
        outcome other_queries = backward(&c);
        assert_same_tokens(&c, &other_keys, &other_queries, "grad_k", key, LENGTH);
        assert_same_tokens(&c, &other_keys, &other_queries, "grad_v", key, LENGTH);

        const rows later[] = {{&c.of[TENSOR(grad_o)], CUT, LENGTH},
                              {&c.of[TENSOR(grad_lse)], CUT, LENGTH}}; /* the loss depends on the past only */
        for (int x = 0; x < 2; x++) {
            for (int64_t b = 0; b < 2; b++)
                for (int64_t h = 0; h < 4; h++)
                    for (int64_t i = later[x].from; i < later[x].to; i++)
                        for (int64_t d = 0; d < later[x].t->shape[3]; d++)
                            tensor_set(later[x].t, tensor_at(later[x].t, b, h, i, d), 0);
            tensor_read(later[x].t);
        }
        outcome only_past = backward(&c);
        const output *d[] = {gradient(&only_past, "grad_k"), gradient(&only_past, "grad_v")};
        for (int x = 0; x < 2; x++)
            for (int64_t at = 0; at < 2 * 2 * LENGTH * d[x]->got.shape[3]; at++)
                if (at / d[x]->got.shape[3] % LENGTH >= key) assert_near(&c, d[x]->name, d[x]->got.value[at], 0, 0);

        outcome *all[] = {&before, &other_keys, &other_queries, &only_past};
        for (int x = 0; x < 4; x++) outcome_free(&c, all[x]);
        combination_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(p12_no_leak),  cmocka_unit_test(p27_scores), cmocka_unit_test(p28_keys),
        cmocka_unit_test(p29_values),   cmocka_unit_test(p30_linear), cmocka_unit_test(p31_p35_pieces),
        cmocka_unit_test(p33_constant), cmocka_unit_test(p34_groups), cmocka_unit_test(soft_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
