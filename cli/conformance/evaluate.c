/* SPDX-License-Identifier: MIT
 * evaluate.c - runs a translated case in each type that it is meant for, and compares. */
#include "evaluate.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../check/bound.h"
#include "../check/element.h"
#include "../failure.h"

/* Scores up to this size are moderate: in f32 they leave 1e-5 of a weight right. */
static const double moderate = 20;

/* One run of the library, forward. */
typedef struct run {
    const char *name; /* "f32" */
    attn_problem problem;
    attn_args args;
    expectation expected;
    double *O, *lse, *P, *S; /* what it got; S where the case expects scores */
    int64_t block_kv;
} run;

/* How exact the case is, and how it is run. */
typedef struct judgement {
    double rtol, atol;
    const common_settings *settings;
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

static attn_layout layout_of(const view *v)
{
    attn_layout layout = {.dtype = v->dtype};
    for (int axis = 0; axis < 4; axis++) layout.stride[axis] = v->stride[axis] ? v->stride[axis] : ATTN_BROADCAST;
    return layout;
}

/* q, k, v and o need a last axis without gaps. */
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

static const void *index_of(view_pool *pool, const view *v)
{
    int64_t *index = pool_take(pool, view_count(v), sizeof *index);
    for (int64_t n = 0; n < view_count(v); n++) index[n] = (int64_t)view_get(v, n);
    return index;
}

static const void *array_of(view_pool *pool, const view *v, attn_dtype dtype) { return view_convert(pool, v, dtype).data; }

/* dtype 0: as the file has it; ATTN_F64: widened. */
static void set_problem(run *r, translation *t, attn_dtype dtype)
{
    const view q = contiguous(t->pool, &t->q, dtype ? dtype : t->q.dtype),
               k = contiguous(t->pool, &t->k, dtype ? dtype : t->k.dtype),
               v = contiguous(t->pool, &t->v, dtype ? dtype : t->v.dtype);
    attn_problem p = {.struct_size = sizeof p,
                      .shape = {q.size[0], q.size[1], k.size[1], q.size[2], k.size[2], q.size[3], v.size[3]},
                      .q = layout_of(&q),
                      .k = layout_of(&k),
                      .v = layout_of(&v),
                      .o = {.dtype = q.dtype}};
    attn_args a = {.struct_size = sizeof a, .q = q.data, .k = k.data, .v = v.data};
    p.q.stride[3] = p.k.stride[3] = p.v.stride[3] = 1;
    if (t->has_scale) p.score.scale_kind = ATTN_SCALE_VALUE, p.score.scale = t->scale;
    p.score.temperature = t->temperature;
    p.score.softcap = t->softcap;
    const attn_dtype compute = q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    if (view_given(&t->scales)) p.score.scale_kind = ATTN_SCALE_PER_HEAD, a.scale = array_of(t->pool, &t->scales, compute);
    if (view_given(&t->sink)) p.bias.sink = 1, a.sink = array_of(t->pool, &t->sink, compute);
    if (view_given(&t->slopes)) {
        p.bias.alibi = t->slopes.rank == 2 ? ATTN_ALIBI_BATCH_HEAD : ATTN_ALIBI_HEAD;
        a.slopes = array_of(t->pool, &t->slopes, compute);
    }
    p.mask.chunk = t->chunk;
    p.mask.causal = t->causal;
    p.mask.align = t->align;
    p.mask.window = t->window;
    p.mask.window_left = t->window ? t->window_left : 0;
    p.mask.window_right = t->window ? t->window_right : 0;
    if (view_given(&t->mask)) p.mask.boolean = 1, p.mask.mask = layout_of(&t->mask), a.mask = t->mask.data;
    if (view_given(&t->bias)) p.bias.additive = 1, p.bias.bias = layout_of(&t->bias), a.bias = t->bias.data;
    if (view_given(&t->keep)) {
        p.dropout.probability = t->dropout;
        p.dropout.given = 1;
        p.dropout.given_layout = layout_of(&t->keep);
        a.dropout_given = t->keep.data;
    }
    if (view_given(&t->lengths_q)) p.mask.lengths_q = 1, a.lengths_q = index_of(t->pool, &t->lengths_q);
    if (view_given(&t->lengths_kv)) p.mask.lengths_kv = 1, a.lengths_kv = index_of(t->pool, &t->lengths_kv);
    if (t->align == ATTN_ALIGN_OFFSET) {
        int64_t *offset = pool_take(t->pool, p.shape.batch, sizeof *offset);
        for (int64_t b = 0; b < p.shape.batch; b++) offset[b] = t->offset;
        a.offset = offset;
    }
    p.want.lse = p.want.weights = 1;
    p.want.scores = view_given(&t->scores);
    p.want.scores_stage = t->stage;
    r->problem = p;
    r->args = a;
}

static double *take_output(view_pool *pool, const void *data, attn_dtype dtype, const int64_t size[4])
{
    double *numbers = pool_take(pool, tensor_count(size), sizeof *numbers);
    element_gather(data, &(attn_layout){.dtype = dtype}, size, numbers);
    return numbers;
}

/* Plans and executes; 0 if the library refuses. */
static int call_library(evaluation *e, const run *r, const attn_problem *problem, const attn_args *args, view_pool *pool,
                        const common_settings *settings, attn_plan_description *about)
{
    attn_options options = options_for_library(settings);
    attn_plan *plan = NULL;
    attn_error error;
    attn_status status = attn_plan_create(&plan, problem, &options, &error);
    about->struct_size = sizeof *about;
    if (status == ATTN_OK) status = attn_plan_describe(plan, about, &error);
    if (status == ATTN_OK) {
        const size_t bytes = attn_plan_workspace_size(plan);
        status = attn_execute(plan, args, pool_take(pool, (int64_t)bytes, 1), bytes, &error);
    }
    attn_plan_destroy(plan);
    if (status != ATTN_OK) fail(e, "%s: %s", r->name, error.message);
    return status == ATTN_OK;
}

/* Forward.  o and lse stay where args point, for what follows. */
static int run_forward(evaluation *e, run *r, view_pool *pool, const common_settings *settings)
{
    const tensor_sizes sizes = tensor_sizes_of(&r->problem);
    const attn_problem full = problem_resolve(&r->problem);
    const attn_dtype wide = full.want.lse_layout.dtype;
    attn_plan_description about;

    r->args.o = pool_take(pool, tensor_count(sizes.o), 8);
    r->args.lse = pool_take(pool, tensor_count(sizes.lse), 8);
    r->args.weights = pool_take(pool, tensor_count(sizes.weights), 8);
    if (r->problem.want.scores) r->args.scores = pool_take(pool, tensor_count(sizes.weights), 8);
    if (!call_library(e, r, &r->problem, &r->args, pool, settings, &about)) return 0;
    r->block_kv = about.block_kv;
    r->O = take_output(pool, r->args.o, full.o.dtype, sizes.o);
    r->lse = take_output(pool, r->args.lse, wide, sizes.lse);
    r->P = take_output(pool, r->args.weights, wide, sizes.weights);
    if (r->args.scores) r->S = take_output(pool, r->args.scores, wide, sizes.weights);
    return 1;
}

/* ---- expected numbers ---- */

/* One kind of output: what is expected, what the reference and the library have. */
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

/* The first number of a that is not close to b, or -1.  stored: b may be off by one rounding to it. */
static int64_t first_apart(const double *a, const double *b, int64_t count, double rtol, double atol, attn_dtype stored)
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

/* The comparison of `o`, `lse` and `P` with numbers that take the place of the reference, as a fraction of the bound. */
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
    const tensor_sizes sizes = tensor_sizes_of(&r->problem);
    triple all[3];
    int count = 0, wide = 1;
    if (view_given(&t->o)) {
        all[count++] = (triple){"o", numbers_of(t->pool, &t->o), r->expected.O, r->O, tensor_count(sizes.o), r->problem.o.dtype};
        wide &= t->o.dtype == ATTN_F64;
    }
    if (view_given(&t->lse)) {
        all[count++] = (triple){"lse", numbers_of(t->pool, &t->lse), r->expected.lse, r->lse, tensor_count(sizes.lse), ATTN_F64};
        wide &= t->lse.dtype == ATTN_F64;
    }
    if (view_given(&t->weights)) {
        all[count++] =
            (triple){"weights", numbers_of(t->pool, &t->weights), r->expected.P, r->P, tensor_count(sizes.weights), ATTN_F64};
        wide &= t->weights.dtype == ATTN_F64;
    }

    int exact = 1; /* the expected numbers are right to rtol 1e-5, atol 1e-6 */
    for (int i = 0; i < count; i++) {
        const int64_t n = first_apart(all[i].reference, all[i].expected, all[i].count, rtol, atol, ATTN_F64);
        if (n >= 0)
            fail(e, "the reference does not agree with the suite: %s[%lld] = %.9g, expected %.9g", all[i].name, (long long)n,
                 all[i].reference[n], all[i].expected[n]);
        exact &= first_apart(all[i].reference, all[i].expected, all[i].count, 1e-5, 1e-6, ATTN_F64) < 0;
    }
    for (int64_t n = 0; view_given(&t->o) && n < all[0].count; n++) {
        const double error = fabs(all[0].got[n] - all[0].expected[n]);
        if (error > e->max_error && r->problem.o.dtype == t->q.dtype) e->max_error = error;
    }

    /* Computed in double: then nothing but the rounding of double may lie between. */
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
    /* Large scores in f32: the suite's numbers are as far off as the bound allows, and it has judged. */
    if (r->expected.compute != ATTN_F64 && !scores_are_moderate(&r->expected)) return;
    const int half = r->problem.o.dtype == ATTN_F16 || r->problem.o.dtype == ATTN_BF16;
    if (exact && !half) rtol = 1e-5, atol = 1e-6;
    for (int i = 0; i < count; i++) {
        const int64_t n = first_apart(all[i].got, all[i].expected, all[i].count, rtol, atol, all[i].stored);
        if (n >= 0)
            fail(e, "%s: %s[%lld] = %.9g, expected %.9g (rtol %g, atol %g)", r->name, all[i].name, (long long)n, all[i].got[n],
                 all[i].expected[n], rtol, atol);
    }
}

/* ---- numbers whose bounds are known one by one: scores, gradients, tangents ---- */

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

    int64_t at = first_apart(n->exact, n->expected, count, how->rtol, how->atol, ATTN_F64);
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
    at = first_apart(n->got, n->expected, count, how->rtol, how->atol, n->stored);
    if (at >= 0)
        fail(e, "%s: %s[%lld] = %.9g, expected %.9g (rtol %g, atol %g)", r->name, n->name, (long long)at, n->got[at],
             n->expected[at], how->rtol, how->atol);
}

static void judge_scores(evaluation *e, const run *r, translation *t, const judgement *how)
{
    const attn_problem full = problem_resolve(&r->problem);
    numbers n = {.name = "scores", .got = r->S, .stored = full.want.lse_layout.dtype, .given = t->scores.dtype};
    memcpy(n.size, tensor_sizes_of(&r->problem).weights, sizeof n.size);
    double *exact = pool_take(t->pool, tensor_count(n.size), sizeof *exact),
           *bound = pool_take(t->pool, tensor_count(n.size), sizeof *bound);
    n.expected = numbers_of(t->pool, &t->scores);
    n.exact = exact;
    n.bound = bound;
    if (!expected_scores(&r->expected, t->stage, exact, bound)) fail(e, "out of memory");
    else judge_numbers(e, r, &n, how);
}

/* Where the library finds what flows in, in the types that it takes. */
static void give_flows(const run *r, translation *t, attn_problem *p, attn_args *args)
{
    for (int f = 0; f < FLOW_OUTPUTS; f++) {
        view *given = &t->flow[f];
        if (!view_given(given) || !flow_read_by((flow)f, p->op)) continue;
        view v = view_convert(t->pool, given, flow_dtype((flow)f, &r->problem));
        if (f == FLOW_TAN_BIAS) {
            int64_t whole[4];
            flow_size((flow)f, p, whole);
            if (!view_expand(&v, whole, &v)) fail_case(t, "the tangent of the bias does not broadcast to the scores");
        }
        flow_ask((flow)f, p);
        *flow_layout((flow)f, p) = layout_of(&v);
        flow_layout((flow)f, p)->stride[3] = v.stride[3] ? v.stride[3] : 1;
        flow_point((flow)f, args, (void *)v.data);
    }
}

/* One operation beyond forward, with all that the case expects of it. */
static void judge_operation(evaluation *e, const run *r, translation *t, attn_op op, const judgement *how)
{
    attn_problem p = r->problem;
    attn_args args = r->args;
    attn_plan_description about;
    flows all;
    p.op = op;
    p.want = (attn_want){.lse = 1};
    p.gradients.grad_bias.dtype = p.second.second_bias.dtype = r->expected.compute; /* a bias may have fewer bits */
    give_flows(r, t, &p, &args);
    if (op != ATTN_JVP && !view_given(&t->flow[FLOW_GRAD_O]))
        fail(e, "gradients are expected, but that of the output is not given");
    for (int f = FLOW_OUTPUTS; f < FLOWS; f++) {
        int64_t size[4];
        if (flow_op((flow)f) != op) continue;
        if (view_given(&t->flow[f])) flow_ask((flow)f, &p);
        if (!flow_used((flow)f, &p)) continue;
        flow_size((flow)f, &p, size);
        flow_point((flow)f, &args, pool_take(t->pool, tensor_count(size), 8));
        if (view_given(&t->flow[f]) && view_count(&t->flow[f]) != tensor_count(size))
            fail(e, "the shape of %s is not that of the problem", flow_name((flow)f));
    }
    if (t->wrong[0]) fail(e, "%s", t->wrong);
    if (e->status == CHECK_FAILED || !call_library(e, r, &p, &args, t->pool, how->settings, &about)) return;
    if (!flows_create(&all, &r->expected, &p, &args)) {
        fail(e, "out of memory");
        return;
    }
    for (int f = FLOW_OUTPUTS; f < FLOWS; f++) {
        if (!flow_used((flow)f, &p)) continue;
        const attn_layout *layout = flow_layout((flow)f, &p);
        numbers n = {.name = flow_name((flow)f), .exact = all.exact[f], .bound = all.bound[f], .given = t->flow[f].dtype};
        n.stored = layout && layout->dtype ? layout->dtype : flow_dtype((flow)f, &p);
        flow_size((flow)f, &p, n.size);
        n.got = take_output(t->pool, flow_data((flow)f, &args), n.stored, n.size);
        if (view_given(&t->flow[f])) n.expected = numbers_of(t->pool, &t->flow[f]);
        judge_numbers(e, r, &n, how);
    }
    flows_destroy(&all);
}

static void judge_flows(evaluation *e, const run *r, translation *t, const judgement *how)
{
    static const attn_op ops[] = {ATTN_BACKWARD, ATTN_JVP, ATTN_DOUBLE_BACKWARD};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        int expected = 0;
        for (int f = FLOW_OUTPUTS; f < FLOWS; f++) expected |= flow_op((flow)f) == ops[k] && view_given(&t->flow[f]);
        if (expected) judge_operation(e, r, t, ops[k], how);
    }
}

/* ---- a case ---- */

static void evaluate_in(evaluation *e, translation *t, attn_dtype dtype, const judgement *how)
{
    run r = {.name = attn_dtype_name(dtype ? dtype : t->q.dtype)};
    comparison c;
    char text[160];
    set_problem(&r, t, dtype);
    if (!run_forward(e, &r, t->pool, how->settings)) return;
    if (!expectation_create(&r.expected, &r.problem, &r.args)) {
        fail(e, "out of memory");
        return;
    }
    const attn_problem full = problem_resolve(&r.problem);
    const outputs got = {
        .O = r.O, .lse = r.lse, .P = r.P, .o_dtype = full.o.dtype, .weights_dtype = full.want.weights_layout.dtype};
    if (!compare_outputs(&c, &r.expected, &got, r.block_kv)) {
        fail(e, "out of memory");
    } else {
        comparison_describe(&c, text, sizeof text);
        if (c.fraction > e->bound_fraction) e->bound_fraction = c.fraction;
        if (c.failed) fail(e, "%s: %s (%.3g of the bound)", r.name, text, c.fraction);
        compare_expected(e, &r, t, how->rtol, how->atol);
        if (view_given(&t->scores)) judge_scores(e, &r, t, how);
        judge_flows(e, &r, t, how);
    }
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
    if (t->align == ATTN_ALIGN_OFFSET) spec.offset_kind = SPEC_OFFSET_VALUE, spec.offset = t->offset;
    if (t->window) spec.window = 1, spec.window_left = t->window_left, spec.window_right = t->window_right;
    if (view_given(&t->mask)) spec.mask = 1, spec.mask_drop = 0.5;
    if (view_given(&t->bias)) spec.bias = 1;
    const int lengths_q = view_given(&t->lengths_q), lengths_kv = view_given(&t->lengths_kv);
    spec.lengths = lengths_q ? (lengths_kv ? SPEC_LENGTHS_BOTH : SPEC_LENGTHS_Q) : lengths_kv ? SPEC_LENGTHS_KV : SPEC_LENGTHS_NONE;
    if (t->has_scale) spec.has_scale = 1, spec.scale = t->scale;
    spec.softcap = t->softcap;
    if (t->temperature > 0) spec.temperature = t->temperature;
    spec.alibi = view_given(&t->slopes);
    spec.sink = view_given(&t->sink);
    spec.chunk = t->chunk;
    spec.scale_heads = view_given(&t->scales);
    spec.dropout = t->dropout;
    for (int f = FLOW_OUTPUTS; f < FLOWS; f++) {
        if (!view_given(&t->flow[f])) continue;
        if (flow_op((flow)f) == ATTN_BACKWARD) spec.op = SPEC_BACKWARD;
        if (flow_op((flow)f) == ATTN_JVP) spec.op = SPEC_JVP;
    }
    problem_print(&spec, e->problem, sizeof e->problem);
}

void evaluate(evaluation *e, translation *t, double rtol, double atol, const common_settings *settings)
{
    *e = (evaluation){.status = CHECK_PASSED};
    print_problem(e, t);
    const judgement how = {rtol, atol, settings};
    evaluate_in(e, t, ATTN_DTYPE_DEFAULT, &how);
    if (t->q.dtype == ATTN_F32 && t->k.dtype == ATTN_F32 && t->v.dtype == ATTN_F32) evaluate_in(e, t, ATTN_F64, &how);
}
