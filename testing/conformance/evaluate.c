/* SPDX-License-Identifier: MIT
 * evaluate.c - runs a translated case in each type that applies, and compares. */
#include "evaluate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "testing/bound/bound.h"
#include "testing/text/failure.h"

/* Scores up to this size are moderate: weights in f32 are accurate to 1e-5. */
static const double moderate = 20;

/* One run of the library, forward. */
typedef struct run {
    const char *name; /* "f32" */
    attn_problem problem;
    attn_tensors tensors;
    expectation expected;
    double *O, *lse, *P, *S; /* results; S if the case expects scores */
    int64_t block_kv;
} run;

/* The tolerance of the case, and the options of its runs. */
typedef struct judgement {
    double rtol, atol;
    const attn_options *options;
} judgement;

__attribute__((format(printf, 2, 3))) static void fail(evaluation *e, const char *format, ...)
{
    va_list list;
    if (e->status == CHECK_FAILED) return;
    va_start(list, format);
    vsnprintf(e->reason, sizeof e->reason, format, list);
    va_end(list);
    e->status = CHECK_FAILED;
}

/* With the strides of the view; broadcast axes get ATTN_BROADCAST, not 0. */
static attn_output slot_of(const view *v, attn_dtype dtype)
{
    attn_output slot = {(void *)(uintptr_t)v->data, dtype, {0, 0, 0, 0}};
    for (int axis = 0; axis < 4; axis++) slot.stride[axis] = v->stride[axis] ? v->stride[axis] : ATTN_BROADCAST;
    return slot;
}

static void give(run *r, int t, const view *v) { *tensors_slot(&r->tensors, t) = slot_of(v, v->dtype); }

/* q, k, v and o need a contiguous last axis. */
static view contiguous(view_pool *pool, const view *v, attn_dtype dtype)
{
    return v->dtype == dtype && (v->stride[3] == 1) ? *v : view_convert(pool, v, dtype);
}

static double *numbers_of(view_pool *pool, const view *v)
{
    double *numbers = pool_take(pool, view_count(v), sizeof *numbers);
    for (int64_t n = 0; n < view_count(v); n++) numbers[n] = view_get(v, n);
    return numbers;
}

/* A dense array. */
static void give_array(run *r, view_pool *pool, int t, const view *v, attn_dtype dtype)
{
    if (view_present(v))
        *tensors_slot(&r->tensors, t) = (attn_output){(void *)(uintptr_t)view_convert(pool, v, dtype).data, dtype, {0}};
}

static void give_index(run *r, view_pool *pool, int t, const view *v)
{
    if (!view_present(v)) return;
    int64_t *index = pool_take(pool, view_count(v), sizeof *index);
    for (int64_t n = 0; n < view_count(v); n++) index[n] = (int64_t)view_get(v, n);
    tensors_slot(&r->tensors, t)->data = index;
}

/* dtype 0: the file's types; ATTN_F64: widened. */
static void set_problem(run *r, translation *t, attn_dtype dtype)
{
    const view q = contiguous(t->pool, &t->q, dtype ? dtype : t->q.dtype),
               k = contiguous(t->pool, &t->k, dtype ? dtype : t->k.dtype),
               v = contiguous(t->pool, &t->v, dtype ? dtype : t->v.dtype);
    attn_problem p = {.struct_size = sizeof p,
                      .shape = {q.size[0], q.size[1], k.size[1], q.size[2], k.size[2], q.size[3], v.size[3]}};
    const attn_dtype compute = q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const view *whole[] = {&q, &k, &v};
    const struct {
        int t;
        const view *view;
    } pairs[] = {{TENSOR(mask), &t->mask}, {TENSOR(bias), &t->bias}, {TENSOR(dropout_given), &t->keep}};
    r->tensors = (attn_tensors){.struct_size = sizeof r->tensors};
    for (int n = 0; n < 3; n++) {
        give(r, n, whole[n]);
        tensors_slot(&r->tensors, n)->stride[3] = 1;
        if (view_present(pairs[n].view)) give(r, pairs[n].t, pairs[n].view);
    }
    if (t->has_scale) p.score.scale_kind = ATTN_SCALE_VALUE, p.score.scale = t->scale;
    p.score.temperature = t->temperature;
    p.score.softcap = t->softcap;
    give_array(r, t->pool, TENSOR(scale), &t->scales, compute);
    give_array(r, t->pool, TENSOR(sink), &t->sink, compute);
    give_array(r, t->pool, TENSOR(alibi_slopes), &t->slopes, compute);
    if (t->slopes.rank == 2) memcpy(r->tensors.alibi_slopes.stride, (int64_t[4]){q.size[1], 1, 1, 1}, 4 * sizeof(int64_t));
    p.mask.chunk = t->chunk;
    p.mask.causal = t->causal;
    p.mask.align = t->align;
    p.mask.window = t->window;
    p.mask.window_left = t->window ? t->window_left : 0;
    p.mask.window_right = t->window ? t->window_right : 0;
    if (view_present(&t->keep)) p.dropout.probability = t->dropout;
    give_index(r, t->pool, TENSOR(lengths_q), &t->lengths_q);
    give_index(r, t->pool, TENSOR(lengths_kv), &t->lengths_kv);
    if (t->has_offset) {
        int64_t *offset = pool_take(t->pool, p.shape.batch, sizeof *offset);
        for (int64_t b = 0; b < p.shape.batch; b++) offset[b] = t->offset;
        r->tensors.offset_q.data = offset;
        p.mask.align = ATTN_ALIGN_TOP_LEFT;
    }
    p.outputs.scores_stage = view_present(&t->scores) ? t->stage : ATTN_STAGE_RAW;
    r->tensors.o.dtype = q.dtype;
    tensors_request(&r->tensors, TENSOR(o));
    tensors_request(&r->tensors, TENSOR(lse));
    tensors_request(&r->tensors, TENSOR(weights));
    if (view_present(&t->scores)) tensors_request(&r->tensors, TENSOR(scores));
    r->problem = p;
}

/* A dense output as doubles; NULL if absent. */
static double *take_output(view_pool *pool, const attn_problem *p, const attn_tensors *all, int t)
{
    int64_t size[4];
    if (!tensors_has(all, t)) return NULL;
    tensors_shape(p, all, t, size);
    double *numbers = pool_take(pool, tensor_count(size), sizeof *numbers);
    tensors_read(p, all, t, size, NULL, numbers);
    return numbers;
}

/* Allocates every requested output, with the size that the plan reports. */
static attn_status place_outputs(const attn_plan *plan, attn_tensors *tensors, view_pool *pool, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int t = 0; t < TENSORS && status == ATTN_OK; t++) {
        attn_tensor_plan about = {.struct_size = sizeof about};
        if (tensors_at(tensors, t)->data != ATTN_LATER) continue;
        status = attn_plan_tensor(plan, t, &about, error);
        if (status == ATTN_OK) tensors_slot(tensors, t)->data = pool_take(pool, about.bytes + 1, 1);
    }
    return status;
}

/* Plans and executes; returns 0 if the library rejects the problem. */
static int call_library(evaluation *e, const run *r, const attn_problem *problem, attn_tensors *tensors, view_pool *pool,
                        const attn_options *options, attn_plan_description *about)
{
    attn_plan *plan = NULL;
    attn_error error;
    attn_status status = attn_plan_create(&plan, problem, tensors, options, &error);
    about->struct_size = sizeof *about;
    if (status == ATTN_OK) status = attn_plan_describe(plan, about, &error);
    if (status == ATTN_OK) status = place_outputs(plan, tensors, pool, &error);
    if (status == ATTN_OK) {
        const size_t bytes = attn_plan_workspace_size(plan);
        status = attn_execute(plan, tensors, pool_take(pool, (int64_t)bytes, 1), bytes, &error);
    }
    attn_plan_destroy(plan);
    if (status != ATTN_OK) {
        end_if_out_of_memory(&error);
        fail(e, "%s: %s", r->name, error.message);
    }
    return status == ATTN_OK;
}

/* Forward.  o and lse stay in the slots for later operations. */
static int run_forward(evaluation *e, run *r, view_pool *pool, const attn_options *options)
{
    attn_plan_description about;
    if (!call_library(e, r, &r->problem, &r->tensors, pool, options, &about)) return 0;
    r->block_kv = about.block_kv;
    r->O = take_output(pool, &r->problem, &r->tensors, TENSOR(o));
    r->lse = take_output(pool, &r->problem, &r->tensors, TENSOR(lse));
    r->P = take_output(pool, &r->problem, &r->tensors, TENSOR(weights));
    r->S = take_output(pool, &r->problem, &r->tensors, TENSOR(scores));
    return 1;
}

/* ---- expected numbers ---- */

/* One output: the expected numbers, those of the reference and those of the library. */
typedef struct triple {
    const char *name;
    const double *expected, *reference, *got;
    int64_t count;
    attn_dtype stored; /* of got */
} triple;

static int close_to(double a, double b, double rtol, double atol)
{
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b);
    if (isinf(a) || isinf(b)) return a == b;
    return fabs(a - b) <= atol + rtol * fabs(b);
}

/* The index of the first number of a that is not close to b, or -1.  stored: b may be off by one rounding to this type. */
static int64_t first_difference(const double *a, const double *b, int64_t count, double rtol, double atol, attn_dtype stored)
{
    for (int64_t n = 0; n < count; n++)
        if (!close_to(a[n], b[n], rtol, atol + (isfinite(a[n]) ? bound_storage(stored, a[n]) : 0))) return n;
    return -1;
}

static int scores_are_moderate(const expectation *e)
{
    const int64_t scores = e->ref.B * e->ref.Hq * e->ref.Sq * e->ref.Skv;
    for (int64_t n = 0; n < scores; n++) {
        const double size = e->dot[n] + (e->added ? e->added[n] : 0);
        if (e->S[n] != -INFINITY && e->P[n] > 1e-8 && !(size <= moderate)) return 0;
    }
    return 1;
}

/* The error of o, lse and P with respect to all[].expected instead of the reference, as a fraction of the bound. */
static double fraction_of_bound(const expectation *e, const outputs *got, const triple *all, int count, int64_t block_kv)
{
    expectation other = *e;
    outputs some = {.O = got->O, .o_dtype = got->o_dtype, .weights_dtype = got->weights_dtype};
    comparison c;
    for (int i = 0; i < count; i++) {
        double *numbers = (double *)all[i].expected;
        if (all[i].name[0] == 'o') other.O = numbers;
        if (all[i].name[0] == 'l') other.lse = numbers, some.lse = got->lse;
        if (all[i].name[0] == 'w') other.P = numbers, some.P = got->P;
    }
    return compare_outputs(&c, &other, &some, block_kv) ? c.fraction : INFINITY;
}

/* Steps 1 and 3 of evaluate.h. */
static void compare_expected(evaluation *e, const run *r, translation *t, double rtol, double atol)
{
    const attn_shape *s = &r->problem.shape;
    const int64_t rows = s->batch * s->heads_q * s->len_q;
    triple all[3];
    int count = 0, wide = 1;
    const int has_o = view_present(&t->o);
    if (has_o) {
        all[count++] = (triple){"o", numbers_of(t->pool, &t->o), r->expected.O, r->O, rows * s->dim_v, r->tensors.o.dtype};
        wide &= t->o.dtype == ATTN_F64;
    }
    if (view_present(&t->lse)) {
        all[count++] = (triple){"lse", numbers_of(t->pool, &t->lse), r->expected.lse, r->lse, rows, ATTN_F64};
        wide &= t->lse.dtype == ATTN_F64;
    }
    if (view_present(&t->weights)) {
        all[count++] = (triple){"weights", numbers_of(t->pool, &t->weights), r->expected.P, r->P, rows * s->len_kv, ATTN_F64};
        wide &= t->weights.dtype == ATTN_F64;
    }

    int exact = 1; /* the expected numbers are accurate to rtol 1e-5, atol 1e-6 */
    for (int i = 0; i < count; i++) {
        const int64_t n = first_difference(all[i].reference, all[i].expected, all[i].count, rtol, atol, ATTN_F64);
        if (n >= 0)
            fail(e, "the reference does not agree with the suite: %s[%lld] = %.9g, expected %.9g", all[i].name, (long long)n,
                 all[i].reference[n], all[i].expected[n]);
        exact &= first_difference(all[i].reference, all[i].expected, all[i].count, 1e-5, 1e-6, ATTN_F64) < 0;
    }
    for (int64_t n = 0; has_o && n < all[0].count; n++) {
        const double error = fabs(all[0].got[n] - all[0].expected[n]);
        if (error > e->max_error && r->tensors.o.dtype == t->q.dtype) e->max_error = error;
    }

    /* If the suite computed in double, only the rounding of double may make a difference. */
    if (wide && r->expected.compute == ATTN_F64) {
        const outputs reference = {
            .O = r->expected.O, .lse = r->expected.lse, .P = r->expected.P, .o_dtype = ATTN_F64, .weights_dtype = ATTN_F64};
        const outputs got = {.O = r->O, .lse = r->lse, .P = r->P, .o_dtype = ATTN_F64, .weights_dtype = ATTN_F64};
        if (fraction_of_bound(&r->expected, &reference, all, count, r->block_kv) <= 1) {
            const double fraction = fraction_of_bound(&r->expected, &got, all, count, r->block_kv);
            if (!(fraction <= 2)) fail(e, "%s: %.3g times the bound for double from the suite's numbers", r->name, fraction);
            return;
        }
    }
    /* Large scores in f32: the suite's numbers may be as far off as the bound, which has already been checked. */
    if (r->expected.compute != ATTN_F64 && !scores_are_moderate(&r->expected)) return;
    const int half = r->tensors.o.dtype == ATTN_F16 || r->tensors.o.dtype == ATTN_BF16;
    if (exact && !half) rtol = 1e-5, atol = 1e-6;
    for (int i = 0; i < count; i++) {
        const int64_t n = first_difference(all[i].got, all[i].expected, all[i].count, rtol, atol, all[i].stored);
        if (n >= 0)
            fail(e, "%s: %s[%lld] = %.9g, expected %.9g (rtol %g, atol %g)", r->name, all[i].name, (long long)n, all[i].got[n],
                 all[i].expected[n], rtol, atol);
    }
}

/* ---- numbers with a bound each: scores, gradients, tangents ---- */

typedef struct numbers {
    const char *name;
    int64_t size[4];
    const double *expected, *exact, *bound, *got; /* expected: the suite's, or NULL */
    attn_dtype stored, given;                     /* types of got, and of the suite's numbers */
} numbers;

static double fraction_of(const numbers *n, const double *got, const double *expected)
{
    comparison c = {0};
    compare_numbers(&c, n->name, n->size, got, expected, n->bound, n->stored);
    return c.fraction;
}

/* The three steps of evaluate.h. */
static void judge_numbers(evaluation *e, const run *r, const numbers *n, const judgement *how)
{
    const int64_t count = tensor_count(n->size);
    char text[160];
    comparison c = {0};
    compare_numbers(&c, n->name, n->size, n->got, n->exact, n->bound, n->stored);
    comparison_describe(&c, text, sizeof text);
    if (c.fraction > e->bound_fraction) e->bound_fraction = c.fraction;
    if (c.failed) fail(e, "%s: %s (%.3g of the bound)", r->name, text, c.fraction);
    if (!n->expected) return;

    int64_t at = first_difference(n->exact, n->expected, count, how->rtol, how->atol, ATTN_F64);
    if (at >= 0)
        fail(e, "the reference does not agree with the suite: %s[%lld] = %.9g, expected %.9g", n->name, (long long)at, n->exact[at],
             n->expected[at]);
    if (n->given == ATTN_F64 && r->expected.compute == ATTN_F64 && fraction_of(n, n->exact, n->expected) <= 1) {
        const double fraction = fraction_of(n, n->got, n->expected);
        if (!(fraction <= 2))
            fail(e, "%s: %s is %.3g times the bound for double from the suite's numbers", r->name, n->name, fraction);
        return;
    }
    if (r->expected.compute != ATTN_F64 && !scores_are_moderate(&r->expected)) return;
    at = first_difference(n->got, n->expected, count, how->rtol, how->atol, n->stored);
    if (at >= 0)
        fail(e, "%s: %s[%lld] = %.9g, expected %.9g (rtol %g, atol %g)", r->name, n->name, (long long)at, n->got[at],
             n->expected[at], how->rtol, how->atol);
}

static void judge_scores(evaluation *e, const run *r, translation *t, const judgement *how)
{
    numbers n = {.name = "scores", .got = r->S, .stored = r->expected.compute, .given = t->scores.dtype};
    tensors_shape(&r->problem, &r->tensors, TENSOR(scores), n.size);
    double *exact = pool_take(t->pool, tensor_count(n.size), sizeof *exact),
           *bound = pool_take(t->pool, tensor_count(n.size), sizeof *bound);
    n.expected = numbers_of(t->pool, &t->scores);
    n.exact = exact;
    n.bound = bound;
    if (!expected_scores(&r->expected, t->stage, exact, bound)) end_out_of_memory("the scores of a case");
    judge_numbers(e, r, &n, how);
}

/* Sets the slots of incoming gradients and tangents, in the types that the library takes. */
static void give_flows(translation *t, const attn_problem *p, attn_tensors *tensors)
{
    for (int f = 0; f < TENSORS; f++) {
        view *given = &t->flow[f];
        const attn_role *role = tensors_about(f)->role;
        if (!view_present(given) || role[p->op] != ATTN_ROLE_INPUT) continue;
        if (role[ATTN_JVP] == ATTN_ROLE_OUTPUT) continue; /* double backward computes it, too */
        view v = view_convert(t->pool, given, tensors_dtype(tensors, f));
        if (f == TENSOR(tan_bias)) {
            int64_t whole[4];
            tensors_shape(p, tensors, f, whole);
            if (!view_expand(&v, whole, &v)) fail_case(t, "the tangent of the bias does not broadcast to the scores");
        }
        *tensors_slot(tensors, f) = slot_of(&v, v.dtype);
        tensors_slot(tensors, f)->stride[3] = v.stride[3] ? v.stride[3] : 1;
    }
}

/* One operation other than forward, with all outputs that the case expects of it. */
static void judge_operation(evaluation *e, const run *r, translation *t, attn_op op, const judgement *how)
{
    attn_problem p = r->problem;
    attn_tensors tensors = tensors_of_op(&r->tensors, op);
    const attn_tensors needed = tensors_needed(op);
    attn_plan_description about;
    flows all;
    p.op = op;
    p.outputs = (attn_outputs){0};
    give_flows(t, &p, &tensors);
    if (op != ATTN_JVP && !tensors.grad_o.data) fail(e, "gradients are expected, but the gradient of the output is missing");
    for (int f = 0; f < TENSORS; f++) {
        const attn_tensor_description *d = tensors_about(f);
        int64_t size[4];
        if (d->role[op] != ATTN_ROLE_OUTPUT || !(view_present(&t->flow[f]) || tensors_has(&needed, f))) continue;
        tensors_request(&tensors, f);
        tensors_shape(&p, &tensors, f, size);
        if (d->gradient_of == TENSOR(bias)) tensors_slot(&tensors, f)->dtype = r->expected.compute; /* a bias may have fewer bits */
        if (view_present(&t->flow[f]) && view_count(&t->flow[f]) != tensor_count(size))
            fail(e, "the shape of %s is not that of the problem", d->name);
    }
    if (t->wrong[0]) fail(e, "%s", t->wrong);
    if (e->status == CHECK_FAILED || !call_library(e, r, &p, &tensors, t->pool, how->options, &about)) return;
    if (!flows_create(&all, &r->expected, &p, &tensors)) end_out_of_memory("the gradients of a case");
    for (int f = 0; f < TENSORS; f++) {
        if (!tensors_writes(&tensors, op, f)) continue;
        numbers n = {.name = tensors_about(f)->name, .exact = all.exact[f], .bound = all.bound[f], .given = t->flow[f].dtype};
        n.stored = tensors_dtype(&tensors, f);
        tensors_shape(&p, &tensors, f, n.size);
        n.got = take_output(t->pool, &p, &tensors, f);
        if (view_present(&t->flow[f])) n.expected = numbers_of(t->pool, &t->flow[f]);
        judge_numbers(e, r, &n, how);
    }
    flows_destroy(&all);
}

/* 1 if the case expects something that the operation writes. */
static int expects(const translation *t, attn_op op)
{
    int any = 0;
    for (int f = 0; f < TENSORS; f++) any |= tensors_about(f)->role[op] == ATTN_ROLE_OUTPUT && view_present(&t->flow[f]);
    return any;
}

static void judge_flows(evaluation *e, const run *r, translation *t, const judgement *how)
{
    for (int op = ATTN_BACKWARD; op < ATTN_OPERATIONS; op++)
        if (expects(t, (attn_op)op)) judge_operation(e, r, t, (attn_op)op, how);
}

/* ---- a case ---- */

static void evaluate_in(evaluation *e, translation *t, attn_dtype dtype, const judgement *how)
{
    run r = {.name = attn_dtype_name(dtype ? dtype : t->q.dtype)};
    comparison c;
    char text[160];
    set_problem(&r, t, dtype);
    if (!run_forward(e, &r, t->pool, how->options)) return;
    if (!expectation_create(&r.expected, &r.problem, &r.tensors, NULL)) end_out_of_memory("what a case expects");
    const outputs got = {.O = r.O, .lse = r.lse, .P = r.P, .o_dtype = r.tensors.o.dtype, .weights_dtype = r.expected.compute};
    if (!compare_outputs(&c, &r.expected, &got, r.block_kv)) end_out_of_memory("the comparison of a case");
    comparison_describe(&c, text, sizeof text);
    if (c.fraction > e->bound_fraction) e->bound_fraction = c.fraction;
    if (c.failed) fail(e, "%s: %s (%.3g of the bound)", r.name, text, c.fraction);
    compare_expected(e, &r, t, how->rtol, how->atol);
    if (view_present(&t->scores)) judge_scores(e, &r, t, how);
    judge_flows(e, &r, t, how);
    expectation_destroy(&r.expected);
}

/* The case as a problem string; its numbers are its own. */
static void print_problem(evaluation *e, const translation *t)
{
    problem_spec spec;
    problem_init(&spec);
    const attn_dtype dtype = t->q.dtype;
    spec.dtype = dtype == ATTN_F64 ? SPEC_F64 : dtype == ATTN_F16 ? SPEC_F16 : dtype == ATTN_BF16 ? SPEC_BF16 : SPEC_F32;
    spec.shape = (attn_shape){t->q.size[0], t->q.size[1], t->k.size[1], t->q.size[2], t->k.size[2], t->q.size[3], t->v.size[3]};
    const int bottom_right = t->align == ATTN_ALIGN_BOTTOM_RIGHT;
    if (t->causal) spec.causal = bottom_right ? SPEC_CAUSAL_BOTTOM_RIGHT : SPEC_CAUSAL_TOP_LEFT;
    else if (t->window && bottom_right) spec.align = SPEC_ALIGN_BOTTOM_RIGHT;
    if (t->has_offset) spec.offset_kind = SPEC_OFFSET_VALUE, spec.offset = t->offset;
    if (t->window) spec.window = 1, spec.window_left = t->window_left, spec.window_right = t->window_right;
    if (view_present(&t->mask)) spec.mask = 1, spec.mask_drop = 0.5;
    if (view_present(&t->bias)) spec.bias = 1;
    const int lengths_q = view_present(&t->lengths_q), lengths_kv = view_present(&t->lengths_kv);
    spec.lengths = lengths_q ? (lengths_kv ? SPEC_LENGTHS_BOTH : SPEC_LENGTHS_Q) : lengths_kv ? SPEC_LENGTHS_KV : SPEC_LENGTHS_NONE;
    if (t->has_scale) spec.has_scale = 1, spec.scale = t->scale;
    spec.softcap = t->softcap;
    if (t->temperature > 0) spec.temperature = t->temperature;
    spec.alibi = view_present(&t->slopes);
    spec.sink = view_present(&t->sink);
    spec.chunk = t->chunk;
    spec.scale_heads = view_present(&t->scales);
    spec.dropout = t->dropout;
    if (expects(t, ATTN_BACKWARD)) spec.op = SPEC_BACKWARD;
    if (expects(t, ATTN_JVP)) spec.op = SPEC_JVP;
    problem_print(&spec, e->problem, sizeof e->problem);
}

void evaluate(evaluation *e, translation *t, double rtol, double atol, const attn_options *options)
{
    *e = (evaluation){.status = CHECK_PASSED};
    print_problem(e, t);
    const judgement how = {rtol, atol, options};
    evaluate_in(e, t, ATTN_DTYPE_DEFAULT, &how);
    if (t->q.dtype == ATTN_F32 && t->k.dtype == ATTN_F32 && t->v.dtype == ATTN_F32) evaluate_in(e, t, ATTN_F64, &how);
}
