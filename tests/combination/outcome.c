/* SPDX-License-Identifier: MIT
 * outcome.c - the outputs of an operation, by the library and by ref/. */
#include "test.h"

#include "outcome.h"

#include "bound.h"

#include <float.h>
#include <math.h>

static double *array(int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static int64_t size_of(const int64_t shape[4]) { return shape[0] * shape[1] * shape[2] * shape[3]; }

output *outcome_add(outcome *out, const char *name, tensor got, void **pointer, attn_layout *layout)
{
    assert_true(out->count < OUTCOME_MOST);
    output *o = &out->of[out->count++];
    o->name = name;
    o->got = got;
    o->exact = array(size_of(got.shape));
    o->bound = array(size_of(got.shape));
    *pointer = got.memory;
    if (layout) *layout = got.layout;
    return o;
}

/* Adds x, of shape n, up over the axes where `o` has size 1.  x may be NULL, for nothing. */
static void reduce(const double *x, const int64_t n[4], const int64_t to[4], double *sum)
{
    for (int64_t at = 0; x && at < size_of(n); at++) {
        int64_t place = 0, index[4] = {at / n[3] / n[2] / n[1], at / n[3] / n[2] % n[1], at / n[3] % n[2], at % n[3]};
        for (int axis = 0; axis < 4; axis++) place = place * to[axis] + (to[axis] > 1 ? index[axis] : 0);
        sum[place] += x[at];
    }
}

/* A dense tensor of the shape that the gradient of the bias has: 1 on the axes that the bias broadcasts. */
static tensor like_bias(const combination *c)
{
    int64_t shape[4];
    for (int axis = 0; axis < 4; axis++) shape[axis] = c->bias.layout.stride[axis] == ATTN_BROADCAST ? 1 : c->bias.shape[axis];
    return tensor_make(c->bias.layout.dtype, shape, BY_HEAD, 0, NULL);
}

static tensor numbers(const combination *c, int64_t batch)
{
    const int64_t shape[4] = {batch, c->ref.Hq, 1, 1};
    return tensor_make(combination_compute(c), shape, BY_HEAD, 0, NULL);
}

/* exact and bound may be NULL, for nothing. */
static void copy(output *o, const double *exact, const double *bound)
{
    if (exact) memcpy(o->exact, exact, (size_t)size_of(o->got.shape) * sizeof(double));
    if (bound) memcpy(o->bound, bound, (size_t)size_of(o->got.shape) * sizeof(double));
}

static void want_forward(combination *c, outcome *out)
{
    const ref_problem *p = &c->ref;
    output *o = outcome_add(out, "o", combination_like(&c->o), &c->args.o, &c->problem.o);
    output *lse = outcome_add(out, "lse", combination_like(&c->lse), &c->args.lse, &c->problem.want.lse_layout);
    c->problem.want.lse = 1;
    if (out->bare) return;
    double *S = array(p->B * p->Hq * p->Sq * p->Skv), *P = array(p->B * p->Hq * p->Sq * p->Skv);
    ref_forward(p, o->exact, lse->exact, S, P);
    ref_bounds b = bounds_of_forward(p, combination_compute(c), out->unit);
    copy(o, NULL, b.O);
    copy(lse, NULL, b.lse);
    if (c->statistics) outcome_want_statistics(c, out, S, P, lse->exact, b.lse);
    ref_bounds_free(&b);
    free(S), free(P);
}

static double *like_table(const tensor *t) { return t->memory ? array(size_of(t->shape)) : NULL; }

static void want_backward(combination *c, outcome *out)
{
    const ref_problem *p = &c->ref;
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv, pairs[4] = {p->B, p->Hq, p->Sq, p->Skv},
                  heads[4] = {p->B, p->Hq, 1, 1};
    attn_gradients *want = &c->problem.gradients;
    attn_args *a = &c->args;
    ref_gradients g = {.dO = c->grad_o.value,
                       .dlse = c->grad_lse.value,
                       .dQ = array(rows * p->D),
                       .dK = array(keys * c->k.shape[3]),
                       .dV = array(keys * p->Dv),
                       .P = array(rows * p->Skv),
                       .dS = array(rows * p->Skv),
                       .dscale = array(p->Hq),
                       .dslopes = array(p->B * p->Hq),
                       .dsink = array(p->Hq),
                       .dW = p->W ? array(size_of(c->w.shape)) : NULL,
                       .drelative_keys = like_table(&c->relative_keys),
                       .drelative_values = like_table(&c->relative_values),
                       .drelative_u = like_table(&c->relative_u),
                       .drelative_v = like_table(&c->relative_v),
                       .dbias_table = p->bias_table ? array(size_of(c->bias_table.shape)) : NULL};
    if (c->ref.normaliser >= REF_BY_SIGMOID) g.dlse = NULL; /* whose lse is no function of the scores */
    const ref_second sizes = {.dO = g.dO, .dlse = g.dlse};
    ref_bounds b = {0};
    if (!out->bare) {
        ref_backward(p, &g);
        b = bounds_of_backward(p, &sizes, combination_compute(c), out->unit, combination_storage_unit(c));
    }

    want->lse = g.dlse != NULL;
    want->scale = 1;
    copy(outcome_add(out, "grad_q", combination_like(&c->q), &a->grad_q, &want->grad_q), g.dQ, b.Q);
    copy(outcome_add(out, "grad_k", combination_like(&c->k), &a->grad_k, &want->grad_k), g.dK, b.K);
    copy(outcome_add(out, "grad_v", combination_like(&c->v), &a->grad_v, &want->grad_v), g.dV, b.V);
    copy(outcome_add(out, "grad_scale", numbers(c, 1), &a->grad_scale, NULL), g.dscale, b.scale);
    if ((want->bias = c->problem.bias.additive)) {
        output *bias = outcome_add(out, "grad_bias", like_bias(c), &a->grad_bias, &want->grad_bias);
        reduce(g.dS, pairs, bias->got.shape, bias->exact);
        reduce(b.S, pairs, bias->got.shape, bias->bound);
    }
    if ((want->slopes = c->problem.bias.alibi != ATTN_ALIBI_NONE)) {
        int each = c->problem.bias.alibi == ATTN_ALIBI_BATCH_HEAD;
        output *slopes = outcome_add(out, "grad_slopes", numbers(c, each ? p->B : 1), &a->grad_slopes, NULL);
        reduce(g.dslopes, heads, slopes->got.shape, slopes->exact);
        reduce(b.slopes, heads, slopes->got.shape, slopes->bound);
    }
    if ((want->sink = c->problem.bias.sink))
        copy(outcome_add(out, "grad_sink", numbers(c, 1), &a->grad_sink, NULL), g.dsink, b.sink);
    if ((want->w = p->W != NULL)) {
        tensor like = c->w;
        like.layout.dtype = combination_compute(c);
        copy(outcome_add(out, "grad_w", combination_like(&like), &a->grad_w, &want->grad_w), g.dW, b.W);
    }
    if ((want->relative = p->relative_keys || p->relative_values)) {
        const struct {
            const char *name;
            const tensor *like;
            void **pointer;
            attn_layout *layout;
            double *exact, *bound;
        } tables[] = {
            {"grad_relative_keys", &c->relative_keys, &a->grad_relative_keys, &want->grad_relative_keys, g.drelative_keys,
             b.relative_keys},
            {"grad_relative_values", &c->relative_values, &a->grad_relative_values, &want->grad_relative_values, g.drelative_values,
             b.relative_values},
            {"grad_relative_u", &c->relative_u, &a->grad_relative_u, NULL, g.drelative_u, b.relative_u},
            {"grad_relative_v", &c->relative_v, &a->grad_relative_v, NULL, g.drelative_v, b.relative_v},
        };
        for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
            if (!tables[i].like->memory) continue;
            tensor like = *tables[i].like;
            like.layout.dtype = combination_compute(c);
            copy(outcome_add(out, tables[i].name, combination_like(&like), tables[i].pointer, tables[i].layout), tables[i].exact,
                 tables[i].bound);
        }
    }
    if ((c->problem.gradients.bias_table = p->bias_table != NULL)) {
        tensor like = c->bias_table;
        like.layout.dtype = combination_compute(c);
        copy(outcome_add(out, "grad_bias_table", combination_like(&like), &a->grad_bias_table,
                         &c->problem.gradients.grad_bias_table),
             g.dbias_table, b.bias_table);
    }
    double *all[] = {g.dQ,
                     g.dK,
                     g.dV,
                     g.P,
                     g.dS,
                     g.dscale,
                     g.dslopes,
                     g.dsink,
                     g.dW,
                     g.dbias_table,
                     g.drelative_keys,
                     g.drelative_values,
                     g.drelative_u,
                     g.drelative_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    ref_bounds_free(&b);
}

/* What flows in along the tangents that the problem says are given. */
static ref_second inputs(const combination *c)
{
    const attn_tangents *t = &c->problem.tangents;
    return (ref_second){.dO = c->grad_o.value,
                        .dlse = c->grad_lse.value,
                        .Qd = combination_tangent(&c->tan_q, t->q),
                        .Kd = combination_tangent(&c->tan_k, t->k),
                        .Vd = combination_tangent(&c->tan_v, t->v),
                        .biasd = combination_tangent(&c->tan_bias, t->bias)};
}

static void want_jvp(combination *c, outcome *out)
{
    const ref_second in = inputs(c), sizes = {.Qd = in.Qd, .Kd = in.Kd, .Vd = in.Vd, .biasd = in.biasd};
    bounds b;
    output *o = outcome_add(out, "tan_o", combination_like(&c->o), &c->args.tan_o, &c->problem.tangents.tan_o);
    output *lse = outcome_add(out, "tan_lse", combination_like(&c->lse), &c->args.tan_lse, NULL);
    const ref_tangents t = {in.Qd, in.Kd, in.Vd, in.biasd, o->exact, lse->exact};
    c->problem.tangents.lse = 1;
    if (out->bare) return;
    ref_jvp(&c->ref, &t);
    bounds_make(&b, &c->ref, &sizes);
    copy(o, NULL, b.tan_o);
    copy(lse, NULL, b.tan_lse);
    bounds_free(&b);
}

static void want_second(combination *c, outcome *out)
{
    const ref_problem *p = &c->ref;
    const int64_t pairs[4] = {p->B, p->Hq, p->Sq, p->Skv};
    attn_second *want = &c->problem.second;
    attn_args *a = &c->args;
    bounds b = {0};
    output *o = outcome_add(out, "second_grad_o", combination_like(&c->o), &a->second_grad_o, &want->second_grad_o);
    output *lse = outcome_add(out, "second_grad_lse", combination_like(&c->lse), &a->second_grad_lse, NULL);
    output *q = outcome_add(out, "second_q", combination_like(&c->q), &a->second_q, &want->second_q);
    output *k = outcome_add(out, "second_k", combination_like(&c->k), &a->second_k, &want->second_k);
    output *v = outcome_add(out, "second_v", combination_like(&c->v), &a->second_v, &want->second_v);
    ref_second s = inputs(c);
    c->problem.gradients.lse = want->grad_lse = 1;
    s.dO2 = o->exact, s.dlse2 = lse->exact, s.Q2 = q->exact, s.K2 = k->exact, s.V2 = v->exact;
    s.S2 = array(size_of(pairs));
    if (!out->bare) {
        ref_second_order(p, &s);
        bounds_make(&b, p, &s);
    }
    const double *bound[] = {b.tan_o, b.tan_lse, b.q, b.k, b.v};
    for (int i = 0; i < out->count; i++) copy(&out->of[i], NULL, bound[i]);
    if ((want->bias = c->problem.bias.additive)) {
        output *bias = outcome_add(out, "second_bias", like_bias(c), &a->second_bias, &want->second_bias);
        reduce(s.S2, pairs, bias->got.shape, bias->exact);
        reduce(b.bias, pairs, bias->got.shape, bias->bound);
    }
    bounds_free(&b);
    free(s.S2);
}

/* What ref/ says of tokens that a packed tensor does not have: 0, as tensor_read has it. */
static void clear_absent(output *o)
{
    const int64_t *n = o->got.shape;
    for (int64_t row = 0; row < n[0] * n[1] * n[2]; row++)
        for (int64_t c = 0; c < n[3] && !tensor_has(&o->got, row / n[2] / n[1], row % n[2]); c++) o->exact[row * n[3] + c] = 0;
}

static outcome make(combination *c, attn_op op, int bare)
{
    static void (*const want[])(combination *, outcome *) = {
        [ATTN_FORWARD] = want_forward,
        [ATTN_BACKWARD] = want_backward,
        [ATTN_JVP] = want_jvp,
        [ATTN_DOUBLE_BACKWARD] = want_second,
    };
    /* ref/ rounds as much as f64 does. */
    outcome out = {.op = op, .unit = combination_compute(c) == ATTN_F32 ? FLT_EPSILON / 2 : DBL_EPSILON, .bare = bare};
    want[op](c, &out);
    for (int i = 0; i < out.count; i++) clear_absent(&out.of[i]);
    return out;
}

outcome outcome_make(combination *c, attn_op op) { return make(c, op, 0); }

void outcome_free(combination *c, outcome *out)
{
    for (int i = 0; i < out->count; i++) {
        tensor_free(&out->of[i].got);
        free(out->of[i].exact);
        free(out->of[i].bound);
    }
    if (c->statistics) outcome_drop_statistics(c);
    c->args.o = c->o.memory, c->args.lse = c->lse.memory; /* inputs of the next operation */
}

/* Takes away what this operation has no use for, and would refuse. */
static void keep_only(attn_problem *p, attn_op op)
{
    const attn_gradients given = p->gradients;
    if (op != ATTN_BACKWARD) memset(&p->gradients, 0, sizeof p->gradients);
    if (op == ATTN_DOUBLE_BACKWARD) p->gradients.lse = given.lse, p->gradients.grad_o = given.grad_o;
    if (op == ATTN_FORWARD || op == ATTN_BACKWARD) memset(&p->tangents, 0, sizeof p->tangents);
    if (op == ATTN_DOUBLE_BACKWARD) p->tangents.lse = 0, memset(&p->tangents.tan_o, 0, sizeof p->tangents.tan_o);
    if (op != ATTN_DOUBLE_BACKWARD) memset(&p->second, 0, sizeof p->second);
}

int outcome_run(combination *c, outcome *out, attn_isa isa, int threads)
{
    attn_problem given = c->problem;
    for (int i = 0; i < out->count; i++) tensor_fill_bytes(&out->of[i].got, 0xff);
    if (out->op != ATTN_FORWARD && !combination_forward(c, isa)) return 0;
    keep_only(&c->problem, out->op);
    int ran = combination_run(c, out->op, isa, threads);
    c->problem = given;
    for (int i = 0; i < out->count && ran; i++) tensor_read(&out->of[i].got);
    return ran;
}

void outcome_same_bits(combination *c, attn_op op, const int *crews, int count)
{
    outcome out = make(c, op, 1);
    void *one[OUTCOME_MOST];
    size_t bytes[OUTCOME_MOST];
    assert_true(outcome_run(c, &out, ATTN_ISA_DEFAULT, 1));
    for (int i = 0; i < out.count; i++) {
        const tensor *got = &out.of[i].got;
        bytes[i] = (size_t)got->count * attn_dtype_size(got->layout.dtype);
        assert_non_null(one[i] = malloc(bytes[i] + 1));
        memcpy(one[i], got->memory, bytes[i]);
    }
    for (int n = 0; n < count; n++) {
        assert_true(outcome_run(c, &out, ATTN_ISA_DEFAULT, crews[n]));
        for (int i = 0; i < out.count; i++)
            if (memcmp(one[i], out.of[i].got.memory, bytes[i]) != 0)
                fail_msg("%s, score %d, normaliser %d: %s has other bits with %d threads", c->text, (int)c->problem.score.kind,
                         (int)c->problem.score.normaliser, out.of[i].name, crews[n]);
    }
    for (int i = 0; i < out.count; i++) free(one[i]);
    outcome_free(c, &out);
}

const output *outcome_find(const outcome *out, const char *name)
{
    for (int i = 0; i < out->count; i++)
        if (strcmp(out->of[i].name, name) == 0) return &out->of[i];
    return NULL;
}

/* What the last rounding may take from a number of this size. */
static double stored(attn_dtype dtype, double size)
{
    if (dtype == ATTN_F16) return fmax(size * 0x1p-11, 0x1p-25);
    if (dtype == ATTN_BF16) return fmax(size * 0x1p-8, 0x1p-134);
    return 0; /* counted in the bound */
}

static double worst_of(const output *o, double unit)
{
    double worst = 0;
    for (int64_t i = 0; i < size_of(o->got.shape); i++) {
        double got = o->got.value[i], exact = o->exact[i], allowed = unit * o->bound[i];
        if (isnan(exact) || got == exact) continue;
        if (allowed > 0) allowed += stored(o->got.layout.dtype, fabs(exact) + allowed);
        double fraction = fabs(got - exact) / allowed;
        if (!(fraction < INFINITY)) return INFINITY;
        worst = fmax(worst, fraction);
    }
    return worst;
}

double outcome_worst(const outcome *out, const char **name)
{
    double worst = 0;
    *name = "nothing";
    for (int i = 0; i < out->count; i++) {
        double fraction = worst_of(&out->of[i], out->unit);
        if (fraction < worst) continue;
        worst = fraction;
        *name = out->of[i].name;
    }
    return worst;
}

double outcome_worst_run(combination *c, outcome *out, int threads)
{
    double worst = 0;
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_AVX512; isa++) {
        const char *name;
        if (!outcome_run(c, out, (attn_isa)isa, threads)) continue;
        const double fraction = outcome_worst(out, &name);
        if (!(fraction < 1))
            fail_msg("%s, operation %d on %s: %s is %g of the bound", c->text, (int)out->op, attn_isa_name((attn_isa)isa), name,
                     fraction);
        worst = fmax(worst, fraction);
    }
    return worst;
}

double outcome_fraction(combination *c, attn_op op, int threads)
{
    outcome out = outcome_make(c, op);
    const double worst = outcome_worst_run(c, &out, threads);
    outcome_free(c, &out);
    return worst;
}
