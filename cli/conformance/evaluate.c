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

/* One run of the library. */
typedef struct run {
    const char *name; /* "f32" */
    attn_problem problem;
    attn_args args;
    expectation expected;
    double *O, *lse, *P;
    int64_t block_kv;
} run;

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
    if (view_given(&t->lengths_q)) p.mask.lengths_q = 1, a.lengths_q = index_of(t->pool, &t->lengths_q);
    if (view_given(&t->lengths_kv)) p.mask.lengths_kv = 1, a.lengths_kv = index_of(t->pool, &t->lengths_kv);
    if (t->align == ATTN_ALIGN_OFFSET) {
        int64_t *offset = pool_take(t->pool, p.shape.batch, sizeof *offset);
        for (int64_t b = 0; b < p.shape.batch; b++) offset[b] = t->offset;
        a.offset = offset;
    }
    p.want.lse = p.want.weights = 1;
    r->problem = p;
    r->args = a;
}

static double *take_output(view_pool *pool, const void *data, attn_dtype dtype, const int64_t size[4])
{
    double *numbers = pool_take(pool, tensor_count(size), sizeof *numbers);
    element_gather(data, &(attn_layout){.dtype = dtype}, size, numbers);
    return numbers;
}

/* Runs the library; 0 if it refuses. */
static int run_library(evaluation *e, run *r, view_pool *pool, const common_settings *settings)
{
    const tensor_sizes sizes = tensor_sizes_of(&r->problem.shape);
    const attn_problem full = problem_resolve(&r->problem);
    const attn_dtype wide = full.want.lse_layout.dtype;
    attn_options options = options_for_library(settings);
    attn_plan_description about = {.struct_size = sizeof about};
    attn_plan *plan = NULL;
    attn_error error;

    void *o = pool_take(pool, tensor_count(sizes.o), 8), *lse = pool_take(pool, tensor_count(sizes.lse), 8),
         *weights = pool_take(pool, tensor_count(sizes.weights), 8);
    r->args.o = o;
    r->args.lse = lse;
    r->args.weights = weights;
    attn_status status = attn_plan_create(&plan, &r->problem, &options, &error);
    if (status == ATTN_OK) status = attn_plan_describe(plan, &about, &error);
    if (status == ATTN_OK) {
        const size_t bytes = attn_plan_workspace_size(plan);
        status = attn_execute(plan, &r->args, pool_take(pool, (int64_t)bytes, 1), bytes, &error);
    }
    r->block_kv = about.block_kv;
    attn_plan_destroy(plan);
    if (status != ATTN_OK) {
        fail(e, "%s: %s", r->name, error.message);
        return 0;
    }
    r->O = take_output(pool, o, full.o.dtype, sizes.o);
    r->lse = take_output(pool, lse, wide, sizes.lse);
    r->P = take_output(pool, weights, wide, sizes.weights);
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
    const tensor_sizes sizes = tensor_sizes_of(&r->problem.shape);
    const double *O = numbers_of(t->pool, &t->o);
    triple all[3] = {{"o", O, r->expected.O, r->O, tensor_count(sizes.o), r->problem.o.dtype}};
    int count = 1, wide = t->o.dtype == ATTN_F64;
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
    for (int64_t n = 0; n < all[0].count; n++) {
        const double error = fabs(all[0].got[n] - O[n]);
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

static void evaluate_in(evaluation *e, translation *t, attn_dtype dtype, double rtol, double atol, const common_settings *settings)
{
    run r = {.name = attn_dtype_name(dtype ? dtype : t->q.dtype)};
    comparison c;
    char text[160];
    set_problem(&r, t, dtype);
    if (!run_library(e, &r, t->pool, settings)) return;
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
        compare_expected(e, &r, t, rtol, atol);
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
    problem_print(&spec, e->problem, sizeof e->problem);
}

void evaluate(evaluation *e, translation *t, double rtol, double atol, const common_settings *settings)
{
    *e = (evaluation){.status = CHECK_PASSED};
    print_problem(e, t);
    evaluate_in(e, t, ATTN_DTYPE_DEFAULT, rtol, atol, settings);
    if (t->q.dtype == ATTN_F32 && t->k.dtype == ATTN_F32 && t->v.dtype == ATTN_F32)
        evaluate_in(e, t, ATTN_F64, rtol, atol, settings);
    if (e->status == CHECK_PASSED && t->unchecked[0]) snprintf(e->reason, sizeof e->reason, "%s", t->unchecked);
}
