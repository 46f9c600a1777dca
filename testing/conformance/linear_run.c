/* SPDX-License-Identifier: MIT
 *
 * linear_run.c - runs a case of linear attention in f32 and f64, and compares it with the definition and with the suite's own
 * numbers.
 */
#include <math.h>
#include <string.h>

#include "linear_case.h"
#include "testing/problem/linear_tensors.h"
#include "testing/text/failure.h"

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
        /* If a denominator or a gradient cancels, f32 cannot meet the suite's tolerance: the bound is added to it. */
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

/* The owner of the outputs' memory, and the number of elements of each. */
typedef struct taking {
    linear_case *c;
    int64_t *sizes;
} taking;

static void *take(void *context, int t, const attn_tensor_plan *about)
{
    taking *with = context;
    with->sizes[t] = about->shape[0] * about->shape[1] * about->shape[2] * about->shape[3];
    return pool_take(&with->c->pool, with->sizes[t], 8);
}

/* The initial sum of a state that comes without one: zeros. */
static const void *zeros_for(linear_case *c)
{
    const attn_linear_problem *p = &c->problem;
    const int64_t count =
        p->shape.batch * p->shape.heads_kv * attn_features_count(p->features, p->shape.dim_qk, p->random_features);
    void *zeros = pool_take(&c->pool, count, 8);
    memset(zeros, 0, (size_t)count * 8);
    return zeros;
}

static void run_in(evaluation *e, linear_case *c, attn_dtype dtype, double *const exact[ALL], const attn_options *options)
{
    attn_linear_problem p = c->problem;
    const int backward = view_present(&c->tensor[IN_DO]);
    static const int slots[ALL] = {[IN_Q] = LINEAR(q),         [IN_K] = LINEAR(k),         [IN_V] = LINEAR(v),
                                   [IN_DECAY] = LINEAR(decay), [IN_BETA] = LINEAR(beta),   [IN_OMEGA] = LINEAR(feature_matrix),
                                   [IN_ERASE] = LINEAR(erase), [IN_WRITE] = LINEAR(write), [IN_STATE] = LINEAR(initial_state),
                                   [IN_DO] = LINEAR(grad_o),   [OUT_O] = LINEAR(o),        [OUT_STATE] = LINEAR(final_state),
                                   [OUT_DQ] = LINEAR(grad_q),  [OUT_DK] = LINEAR(grad_k),  [OUT_DV] = LINEAR(grad_v)};
    attn_linear_tensors all = {.struct_size = sizeof all, .q.dtype = dtype};
    const int divided = p.denominator != ATTN_DENOMINATOR_NONE, state = view_present(&c->tensor[IN_STATE]);
    attn_error error;
    int64_t sizes[LINEARS] = {0};
    for (int t = 0; t < ALL; t++) {
        attn_output *slot = linear_slot(&all, slots[t]);
        const int used = t != IN_DECAY || c->decays;
        if (t >= INPUTS) slot->data = ATTN_LATER;
        else if (used && view_present(&c->tensor[t]))
            slot->data = (void *)(uintptr_t)view_convert(&c->pool, &c->tensor[t], dtype).data, slot->dtype = dtype;
    }
    if (divided) linear_request(&all, LINEAR(denominators)), linear_request(&all, LINEAR(final_sum));
    if (divided && state) all.initial_sum = attn_in(zeros_for(c));
    if (all.decay.data) linear_request(&all, LINEAR(grad_decay));
    if (all.beta.data) linear_request(&all, LINEAR(grad_beta));
    if (all.erase.data) linear_request(&all, LINEAR(grad_erase)), linear_request(&all, LINEAR(grad_write));
    for (int op = 0; op <= backward; op++) {
        taking with = {c, sizes};
        attn_linear_plan *plan = NULL;
        if (op) p.op = ATTN_BACKWARD;
        attn_status status = linear_plan(&plan, &p, &all, options, take, &with, &error);
        if (status == ATTN_OK) {
            const attn_linear_tensors tensors = linear_of_op(&p, &all);
            const size_t size = attn_linear_plan_workspace_size(plan);
            status = attn_linear_execute(plan, &tensors, pool_take(&c->pool, (int64_t)size, 1), size, &error);
        }
        attn_linear_plan_destroy(plan);
        if (status != ATTN_OK) {
            end_if_out_of_memory(&error);
            conclude(e, status == ATTN_ERR_UNSUPPORTED ? CHECK_SKIPPED : CHECK_FAILED, "%s", error.message);
            return;
        }
    }
    for (int t = INPUTS; t < ALL; t++) {
        double *got = pool_take(&c->pool, sizes[slots[t]], sizeof *got);
        if (!view_present(&c->tensor[t])) continue;
        (void)attn_convert(sizes[slots[t]], linear_slot(&all, slots[t])->data, dtype, got, ATTN_F64, NULL);
        compare(e, c, t, got, exact[t], attn_dtype_name(dtype), dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24);
    }
}

void linear_case_evaluate(evaluation *e, const char *suite, const cJSON *json, const attn_archive *tensors,
                          const attn_options *options)
{
    linear_case c = {0};
    double *exact[ALL] = {0};
    if (linear_translate(e, &c, suite, json, tensors)) {
        linear_define(&c, exact);
        run_in(e, &c, ATTN_F32, exact, options);
        run_in(e, &c, ATTN_F64, exact, options);
    }
    pool_empty(&c.pool);
}
