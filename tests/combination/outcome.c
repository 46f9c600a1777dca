/* SPDX-License-Identifier: MIT
 * outcome.c - the outputs of an operation, from the library and from ref/. */
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

int outcome_has(const combination *c, int t) { return !c->chooses || c->requested[t]; }

output *outcome_add(combination *c, outcome *out, int t, tensor got)
{
    assert_true(out->count < OUTCOME_CAPACITY);
    output *o = &out->of[out->count++];
    *o =
        (output){t, t == OUTCOME_ROWS ? "rows" : tensors_about(t)->name, got, array(size_of(got.shape)), array(size_of(got.shape))};
    if (t == OUTCOME_ROWS) return o;
    attn_output slot = {got.memory, got.layout.dtype, {0, 0, 0, 0}};
    memcpy(slot.stride, got.layout.stride, sizeof slot.stride);
    *tensors_slot(&c->tensors, t) = slot;
    return o;
}

/* Sums x, of shape n, over the axes where `to` is 1.  x NULL: does nothing. */
static void reduce(const double *x, const int64_t n[4], const int64_t to[4], double *sum)
{
    for (int64_t at = 0; x && at < size_of(n); at++) {
        int64_t place = 0, index[4] = {at / n[3] / n[2] / n[1], at / n[3] / n[2] % n[1], at / n[3] % n[2], at % n[3]};
        for (int axis = 0; axis < 4; axis++) place = place * to[axis] + (to[axis] > 1 ? index[axis] : 0);
        sum[place] += x[at];
    }
}

/* A gradient shaped like its input, with size 1 on broadcast axes; for parameters, in the compute type. */
static tensor like_input(const combination *c, int t)
{
    const int of = tensors_about(t)->gradient_of;
    const tensor *x = &c->of[of];
    int64_t shape[4];
    if (tensors_packs(of)) return tensor_like(x);
    tensors_shape(&c->problem, &c->tensors, t, shape);
    const int by_token = x->memory && x->layout.stride[1] < x->layout.stride[2] && of != TENSOR(bias);
    return tensor_make(of == TENSOR(bias) ? x->layout.dtype : combination_compute(c), shape, by_token ? BY_TOKEN : BY_HEAD, 0,
                       NULL);
}

/* exact and bound may be NULL: not copied. */
static void copy(output *o, const double *exact, const double *bound)
{
    if (exact) memcpy(o->exact, exact, (size_t)size_of(o->got.shape) * sizeof(double));
    if (bound) memcpy(o->bound, bound, (size_t)size_of(o->got.shape) * sizeof(double));
}

/* Adds an output; `exact` has the shape of its tensor, or is not yet summed over broadcast axes. */
static output *add(combination *c, outcome *out, int t, const double *exact, const double *bound)
{
    const int of = tensors_about(t)->gradient_of, full = of >= 0 && tensors_about(of)->axes[0] == ATTN_AXIS_BATCH;
    int64_t shape[4];
    output *o = outcome_add(c, out, t, like_input(c, t));
    if (!full || tensors_packs(of)) {
        copy(o, exact, bound);
        return o;
    }
    tensors_shape(&c->problem, &c->tensors, of, shape);
    reduce(exact, shape, o->got.shape, o->exact);
    reduce(bound, shape, o->got.shape, o->bound);
    return o;
}

static void expect_forward(combination *c, outcome *out)
{
    const ref_problem *p = &c->ref;
    output *o = outcome_add(c, out, TENSOR(o), tensor_like(&c->of[TENSOR(o)]));
    output *lse = outcome_add(c, out, TENSOR(lse), tensor_like(&c->of[TENSOR(lse)]));
    if (out->bare) return;
    double *S = array(p->B * p->Hq * p->Sq * p->Skv), *P = array(p->B * p->Hq * p->Sq * p->Skv);
    ref_forward(p, o->exact, lse->exact, S, P);
    ref_bounds b = bounds_of_forward(p, combination_compute(c), out->unit);
    copy(o, NULL, b.O);
    copy(lse, NULL, b.lse);
    int more = c->statistics || c->visits;
    for (int t = 0; t < TENSORS; t++) more |= c->requested[t];
    if (more) outcome_expect_statistics(c, out, S, P, lse->exact, b.lse);
    ref_bounds_free(&b);
    free(S), free(P);
}

static double *like_table(const tensor *t) { return t->memory ? array(size_of(t->shape)) : NULL; }

static void expect_backward(combination *c, outcome *out)
{
    const ref_problem *p = &c->ref;
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv;
    ref_gradients g = {.dO = c->of[TENSOR(grad_o)].value,
                       .dlse = combination_flow(c, TENSOR(grad_lse)),
                       .dQ = array(rows * p->D),
                       .dK = array(keys * c->of[TENSOR(k)].shape[3]),
                       .dV = array(keys * p->Dv),
                       .P = array(rows * p->Skv),
                       .dS = array(rows * p->Skv),
                       .dscale = array(p->Hq),
                       .dslopes = array(p->B * p->Hq),
                       .dsink = array(p->Hq),
                       .dW = p->W ? array(size_of(c->of[TENSOR(score_matrix)].shape)) : NULL,
                       .drelative_keys = like_table(&c->of[TENSOR(relative_keys)]),
                       .drelative_values = like_table(&c->of[TENSOR(relative_values)]),
                       .drelative_u = like_table(&c->of[TENSOR(relative_u)]),
                       .drelative_v = like_table(&c->of[TENSOR(relative_v)]),
                       .dbias_table = p->bias_table ? array(size_of(c->of[TENSOR(bias_table)].shape)) : NULL};
    if (c->ref.normaliser >= REF_BY_SIGMOID)
        g.dlse = NULL, combination_drop(c, TENSOR(grad_lse)); /* its lse does not depend on the scores */
    const ref_gradgrad sizes = {.dO = g.dO, .dlse = g.dlse};
    ref_bounds b = {0};
    if (!out->bare) {
        ref_backward(p, &g);
        b = bounds_of_backward(p, &sizes, combination_compute(c), out->unit, combination_storage_unit(c));
    }

    const struct {
        int t;
        const double *exact, *bound;
    } gradients[] = {{TENSOR(grad_q), g.dQ, b.Q},
                     {TENSOR(grad_k), g.dK, b.K},
                     {TENSOR(grad_v), g.dV, b.V},
                     {TENSOR(grad_scale), g.dscale, b.scale},
                     {TENSOR(grad_bias), g.dS, b.S},
                     {TENSOR(grad_alibi_slopes), g.dslopes, b.slopes},
                     {TENSOR(grad_sink), g.dsink, b.sink},
                     {TENSOR(grad_score_matrix), g.dW, b.W},
                     {TENSOR(grad_relative_keys), g.drelative_keys, b.relative_keys},
                     {TENSOR(grad_relative_values), g.drelative_values, b.relative_values},
                     {TENSOR(grad_relative_u), g.drelative_u, b.relative_u},
                     {TENSOR(grad_relative_v), g.drelative_v, b.relative_v},
                     {TENSOR(grad_bias_table), g.dbias_table, b.bias_table}};
    c->problem.op = ATTN_BACKWARD;
    for (size_t n = 0; n < sizeof gradients / sizeof *gradients; n++) {
        const int t = gradients[n].t; /* grad_scale exists for every kind of scale */
        const int needed = t == TENSOR(grad_q) || t == TENSOR(grad_k) || t == TENSOR(grad_v);
        if (!needed && !outcome_has(c, t)) continue;
        if (t == TENSOR(grad_scale) || tensors_has(&c->tensors, tensors_about(t)->gradient_of))
            (void)add(c, out, t, gradients[n].exact, gradients[n].bound);
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

/* Incoming gradients and tangents, those that are given. */
static ref_gradgrad inputs(const combination *c)
{
    return (ref_gradgrad){.dO = combination_flow(c, TENSOR(grad_o)),
                          .dlse = combination_flow(c, TENSOR(grad_lse)),
                          .Qd = combination_flow(c, TENSOR(tan_q)),
                          .Kd = combination_flow(c, TENSOR(tan_k)),
                          .Vd = combination_flow(c, TENSOR(tan_v)),
                          .biasd = combination_flow(c, TENSOR(tan_bias))};
}

/* For 16-bit storage, takes the bounds of ref/, which include the rounding of O. */
static void bounds_beyond(const combination *c, bounds *b, const ref_gradgrad *s, double unit)
{
    const double storage = combination_storage_unit(c);
    if (storage > 0) *b = bounds_of_stored(&c->ref, s, combination_compute(c), unit, storage);
    else bounds_make(b, &c->ref, s);
}

static void expect_jvp(combination *c, outcome *out)
{
    const ref_gradgrad in = inputs(c), sizes = {.Qd = in.Qd, .Kd = in.Kd, .Vd = in.Vd, .biasd = in.biasd};
    bounds b;
    output *o = add(c, out, TENSOR(tan_o), NULL, NULL), *lse = add(c, out, TENSOR(tan_lse), NULL, NULL);
    const ref_tangents t = {in.Qd, in.Kd, in.Vd, in.biasd, o->exact, lse->exact};
    if (out->bare) return;
    ref_jvp(&c->ref, &t);
    bounds_beyond(c, &b, &sizes, out->unit);
    copy(o, NULL, b.tan_o);
    copy(lse, NULL, b.tan_lse);
    bounds_free(&b);
}

static void expect_double_backward(combination *c, outcome *out)
{
    const ref_problem *p = &c->ref;
    bounds b = {0};
    if (outcome_has(c, TENSOR(grad_lse))) combination_give(c, TENSOR(grad_lse));
    c->problem.op = ATTN_DOUBLE_BACKWARD;
    output *o = add(c, out, TENSOR(second_grad_o), NULL, NULL), *lse = add(c, out, TENSOR(second_grad_lse), NULL, NULL);
    output *q = add(c, out, TENSOR(second_q), NULL, NULL), *k = add(c, out, TENSOR(second_k), NULL, NULL),
           *v = add(c, out, TENSOR(second_v), NULL, NULL);
    ref_gradgrad s = inputs(c);
    s.dO2 = o->exact, s.dlse2 = lse->exact, s.Q2 = q->exact, s.K2 = k->exact, s.V2 = v->exact;
    s.S2 = array(p->B * p->Hq * p->Sq * p->Skv);
    if (!out->bare) {
        ref_double_backward(p, &s);
        bounds_beyond(c, &b, &s, out->unit);
    }
    const double *bound[] = {b.tan_o, b.tan_lse, b.q, b.k, b.v};
    for (int i = 0; i < out->count; i++) copy(&out->of[i], NULL, bound[i]);
    if (c->tensors.bias.data && outcome_has(c, TENSOR(second_bias))) (void)add(c, out, TENSOR(second_bias), s.S2, b.bias);
    bounds_free(&b);
    free(s.S2);
}

/* Sets results of ref/ for tokens that a packed tensor lacks to 0, as tensor_read does. */
static void clear_absent(output *o)
{
    const int64_t *n = o->got.shape;
    for (int64_t row = 0; row < n[0] * n[1] * n[2]; row++)
        for (int64_t c = 0; c < n[3] && !tensor_has(&o->got, row / n[2] / n[1], row % n[2]); c++) o->exact[row * n[3] + c] = 0;
}

static outcome make(combination *c, attn_op op, int bare)
{
    static void (*const expect_outputs[])(combination *, outcome *) = {
        [ATTN_FORWARD] = expect_forward,
        [ATTN_BACKWARD] = expect_backward,
        [ATTN_JVP] = expect_jvp,
        [ATTN_DOUBLE_BACKWARD] = expect_double_backward,
    };
    /* ref/ computes in double, so its rounding is as large as that of f64. */
    outcome out = {.op = op, .unit = combination_compute(c) == ATTN_F32 ? FLT_EPSILON / 2 : DBL_EPSILON, .bare = bare};
    expect_outputs[op](c, &out);
    for (int i = 0; i < out.count; i++) clear_absent(&out.of[i]);
    return out;
}

outcome outcome_make(combination *c, attn_op op) { return make(c, op, 0); }

outcome outcome_make_bare(combination *c, attn_op op) { return make(c, op, 1); }

void outcome_free(combination *c, outcome *out)
{
    for (int i = 0; i < out->count; i++) {
        if (out->of[i].tensor != OUTCOME_ROWS) combination_drop(c, out->of[i].tensor);
        tensor_free(&out->of[i].got);
        free(out->of[i].exact);
        free(out->of[i].bound);
    }
    combination_give(c, TENSOR(o)), combination_give(c, TENSOR(lse)); /* as inputs of the next operation */
}

/* Copies rows that the library passes to the output without a slot. */
void outcome_visit(void *context, const attn_rows *rows)
{
    const tensor *to = context;
    const size_t size = attn_dtype_size(rows->dtype);
    for (int64_t i = 0; i < rows->count; i++)
        memcpy((char *)to->memory + (size_t)tensor_at(to, rows->batch, rows->head, rows->first + i, 0) * size,
               (const char *)rows->values + (size_t)(i * rows->stride) * size, (size_t)rows->len_kv * size);
}

int outcome_run(combination *c, outcome *out, attn_isa isa, int threads)
{
    for (int i = 0; i < out->count; i++) {
        const int shown = out->of[i].tensor == OUTCOME_ROWS; /* padding rows are not passed, and stay 0 */
        tensor_fill_bytes(&out->of[i].got, shown ? 0 : 0xff);
        if (shown) c->call.visit_context = &out->of[i].got;
    }
    if (out->op != ATTN_FORWARD && !combination_forward(c, isa)) return 0;
    const int ran = combination_run(c, out->op, isa, threads);
    for (int i = 0; i < out->count && ran; i++) {
        tensor_read(&out->of[i].got);
        if (out->of[i].tensor != OUTCOME_ROWS && !tensor_gaps_hold(&out->of[i].got))
            fail_msg("%s, operation %d: wrote between the elements of %s", c->text, (int)out->op, out->of[i].name);
    }
    return ran;
}

/* The bits of all outputs, one after the other; the caller frees them. */
static unsigned char *copy_outputs(const outcome *out)
{
    size_t total = 0;
    for (int i = 0; i < out->count; i++) total += (size_t)out->of[i].got.count * attn_dtype_size(out->of[i].got.layout.dtype);
    unsigned char *copy = malloc(total + 1), *end = copy;
    assert_non_null(copy);
    for (int i = 0; i < out->count; i++) {
        const size_t bytes = (size_t)out->of[i].got.count * attn_dtype_size(out->of[i].got.layout.dtype);
        memcpy(end, out->of[i].got.memory, bytes);
        end += bytes;
    }
    return copy;
}

/* Runs it again, and compares. */
static void compare_run(combination *c, outcome *out, int threads, const unsigned char *expected)
{
    assert_true(outcome_run(c, out, ATTN_ISA_DEFAULT, threads));
    for (int i = 0; i < out->count; i++) {
        const size_t bytes = (size_t)out->of[i].got.count * attn_dtype_size(out->of[i].got.layout.dtype);
        if (memcmp(expected, out->of[i].got.memory, bytes) != 0)
            fail_msg("%s, score %d, normaliser %d: %s has other bits with %d threads%s", c->text, (int)c->problem.score.kind,
                     (int)c->problem.score.normaliser, out->of[i].name, threads, c->scheduled ? " and a schedule" : "");
        expected += bytes;
    }
}

void outcome_compare_bits(combination *c, outcome *out, const int *thread_counts, int count)
{
    unsigned char *expected = copy_outputs(out);
    for (int n = 0; n < count; n++) compare_run(c, out, thread_counts[n], expected);
    free(expected);
}

int outcome_compare_scheduled(combination *c, outcome *out, int threads)
{
    if (out->op != ATTN_FORWARD || c->tensors.lengths_q.data || c->call.origin) return 0;
    unsigned char *expected = copy_outputs(out);
    c->scheduled = 1;
    compare_run(c, out, threads, expected);
    c->scheduled = 0;
    free(expected);
    return 1;
}

void outcome_same_bits(combination *c, attn_op op, const int *thread_counts, int count)
{
    outcome out = outcome_make_bare(c, op);
    assert_true(outcome_run(c, &out, ATTN_ISA_DEFAULT, 1));
    outcome_compare_bits(c, &out, thread_counts, count);
    (void)outcome_compare_scheduled(c, &out, thread_counts[0]);
    outcome_free(c, &out);
}

const output *outcome_find(const outcome *out, const char *name)
{
    for (int i = 0; i < out->count; i++)
        if (strcmp(out->of[i].name, name) == 0) return &out->of[i];
    return NULL;
}

/* The rounding error of storing a number of this magnitude. */
static double stored(attn_dtype dtype, double size)
{
    if (dtype == ATTN_F16) return fmax(size * 0x1p-11, 0x1p-25);
    if (dtype == ATTN_BF16) return fmax(size * 0x1p-8, 0x1p-134);
    return 0; /* included in the bound */
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
    for (int isa = ATTN_ISA_SCALAR; isa <= ATTN_ISA_WASM128; isa++) {
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

double outcome_drawn_fraction(uint64_t seed, attn_dtype dtype, int flags, attn_op op, int threads)
{
    combination c;
    combination_draw(&c, seed, dtype, flags);
    const double worst = outcome_fraction(&c, op, threads);
    combination_free(&c);
    return worst;
}

void outcome_drawn_bits(uint64_t seed, attn_dtype dtype, int flags, attn_op op, const int *thread_counts, int count)
{
    combination c;
    combination_draw(&c, seed, dtype, flags);
    outcome_same_bits(&c, op, thread_counts, count);
    combination_free(&c);
}
