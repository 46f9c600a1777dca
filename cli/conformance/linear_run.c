/* SPDX-License-Identifier: MIT
 *
 * linear_run.c - runs a case of linear attention in f32 and f64, and holds it against the definition and against the suite's own
 * numbers.
 */
#include <math.h>

#include "linear_case.h"

static const char *const short_names[ALL] = {
    [OUT_O] = "o", [OUT_STATE] = "final_state", [OUT_DQ] = "dq", [OUT_DK] = "dk", [OUT_DV] = "dv"};

/* One tensor in one type: the three comparisons. */
static void compare(evaluation *e, linear_case *c, int t, const double *got, const double *exact, const char *type, double unit)
{
    const attn_shape *s = &c->problem.shape;
    const double features = (double)attn_features_count(c->problem.features, s->dim_qk, c->problem.random_features);
    const double *expected = linear_doubles(c, t);
    const int64_t n = view_count(&c->tensor[t]);
    const double each = unit * (16 + features + (double)s->len_kv), uniform = each * fmax(c->size[t], largest_of(exact, n));
    const double *rows = t == OUT_O ? c->size_of_o : NULL;
    for (int64_t i = 0; i < n; i++) {
        /* Where a denominator or a gradient cancels, f32 cannot come as close as the suite asks: it is held to the bound. */
        const double bound = rows ? each * rows[i / s->dim_v] : uniform;
        const double close = c->atol + c->rtol * fabs(expected[i]), error = fabs(got[i] - exact[i]);
        if (!(fabs(exact[i] - expected[i]) <= close))
            conclude(e, CHECK_FAILED, "the reference does not agree with the suite: %s[%lld] = %.9g, expected %.9g", short_names[t],
                     (long long)i, exact[i], expected[i]);
        if (!(error <= bound))
            conclude(e, CHECK_FAILED, "%s: %s[%lld] is %.3g times the bound off", type, short_names[t], (long long)i,
                     error / bound);
        if (!(fabs(got[i] - expected[i]) <= close + (rows || t >= OUT_DQ ? bound : 0)))
            conclude(e, CHECK_FAILED, "%s: %s[%lld] = %.9g, expected %.9g", type, short_names[t], (long long)i, got[i],
                     expected[i]);
        if (bound > 0) e->bound_fraction = fmax(e->bound_fraction, error / bound);
        if (t == OUT_O) e->max_error = fmax(e->max_error, fabs(got[i] - expected[i]));
    }
}

static void run_in(evaluation *e, linear_case *c, attn_dtype dtype, double *const exact[ALL], const common_settings *settings)
{
    attn_linear_problem p = c->problem;
    const attn_options options = options_for_library(settings);
    const int backward = view_given(&c->tensor[IN_DO]);
    const void *in[INPUTS];
    void *out[ALL];
    attn_error error;
    for (int t = 0; t < INPUTS; t++) in[t] = view_given(&c->tensor[t]) ? view_convert(&c->pool, &c->tensor[t], dtype).data : NULL;
    const int64_t sizes[ALL] = {[OUT_O] = view_count(&c->tensor[OUT_O]),
                                [OUT_STATE] = p.shape.batch * p.shape.heads_kv * p.shape.dim_v *
                                              attn_features_count(p.features, p.shape.dim_qk, p.random_features),
                                [OUT_DQ] = view_count(&c->tensor[IN_Q]),
                                [OUT_DK] = view_count(&c->tensor[IN_K]),
                                [OUT_DV] = view_count(&c->tensor[IN_V])};
    for (int t = INPUTS; t < ALL; t++) out[t] = pool_take(&c->pool, sizes[t], 8);
    void *sum = pool_take(&c->pool, sizes[OUT_STATE], 8), *n = pool_take(&c->pool, sizes[OUT_O], 8);
    p.q.dtype = dtype;
    p.initial_state = in[IN_STATE] != NULL;
    p.final_state = 1;
    p.want_denominator = p.denominator != ATTN_DENOMINATOR_NONE;
    const attn_linear_args args = {.struct_size = sizeof args,
                                   .q = in[IN_Q],
                                   .k = in[IN_K],
                                   .v = in[IN_V],
                                   .o = out[OUT_O],
                                   .omega = in[IN_OMEGA],
                                   .decay = in[IN_DECAY],
                                   .beta = in[IN_BETA],
                                   .erase = in[IN_ERASE],
                                   .write = in[IN_WRITE],
                                   .initial_state = in[IN_STATE],
                                   .final_state = out[OUT_STATE],
                                   .final_sum = sum,
                                   .denominators = n,
                                   .grad_o = in[IN_DO],
                                   .grad_q = out[OUT_DQ],
                                   .grad_k = out[OUT_DK],
                                   .grad_v = out[OUT_DV]};
    for (int op = 0; op <= backward; op++) {
        attn_linear_plan *plan;
        if (op) p.op = ATTN_BACKWARD, p.final_state = 0;
        attn_status status = attn_linear_plan_create(&plan, &p, &options, &error);
        if (status == ATTN_OK) {
            const size_t size = attn_linear_workspace_size(plan);
            status = attn_linear_execute(plan, &args, pool_take(&c->pool, (int64_t)size, 1), size, &error);
            attn_linear_plan_destroy(plan);
        }
        if (status != ATTN_OK) {
            conclude(e, status == ATTN_ERR_UNSUPPORTED ? CHECK_SKIPPED : CHECK_FAILED, "%s", error.message);
            return;
        }
    }
    for (int t = INPUTS; t < ALL; t++) {
        double *got = pool_take(&c->pool, sizes[t], sizeof *got);
        if (!view_given(&c->tensor[t])) continue;
        attn_convert(got, ATTN_F64, out[t], dtype, sizes[t]);
        compare(e, c, t, got, exact[t], attn_dtype_name(dtype), dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24);
    }
}

void linear_case_evaluate(evaluation *e, const char *suite, const cJSON *json, const attn_tensors *tensors,
                          const common_settings *settings)
{
    linear_case c = {0};
    double *exact[ALL] = {0};
    if (linear_translate(e, &c, suite, json, tensors)) {
        linear_define(&c, exact);
        run_in(e, &c, ATTN_F32, exact, settings);
        run_in(e, &c, ATTN_F64, exact, settings);
    }
    pool_empty(&c.pool);
}
