/* SPDX-License-Identifier: MIT
 * linear.c - `attn check` of linear attention. */
#include "linear.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_ref.h"
#include "testing/case/linear_numbers.h"
#include "testing/problem/linear_problem.h"
#include "testing/random/random.h"
#include "testing/text/failure.h"

typedef struct linear_check {
    attn_linear_problem problem;
    attn_linear_tensors tensors; /* of forward and backward */
    attn_dtype stored, compute;
    attn_dtype type[LINEARS];
    int64_t count[LINEARS];
    double *exact[LINEARS];
} linear_check;

static attn_status check_size(const attn_linear_problem *p, attn_error *error)
{
    const attn_shape *s = &p->shape;
    const double f = (double)attn_features_count(p->features, s->dim_qk, p->random_features);
    const double most = (double)s->batch * (double)s->heads_q * ((double)s->len_q + (double)s->len_kv + f) *
                        (f + (double)s->dim_v + (double)s->dim_qk) * (double)(s->len_kv + 1);
    if (most > 1e10)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "the problem is too large for the reference, which keeps a state for each token");
    return ATTN_OK;
}

typedef struct drawing {
    linear_check *c;
    random_state random;
} drawing;

/* Allocates a tensor; inputs are drawn, and kept exactly in c->exact. */
static void *take(void *context, int t, const attn_tensor_plan *about)
{
    drawing *d = context;
    linear_check *c = d->c;
    const int64_t count = about->shape[0] * about->shape[1] * about->shape[2] * about->shape[3];
    void *memory = need_memory(count + 1, sizeof(double));
    c->count[t] = count;
    c->type[t] = about->dtype;
    c->exact[t] = need_memory(count + 1, sizeof(double));
    if (about->role != ATTN_ROLE_INPUT) return memory;
    for (int64_t i = 0; i < count; i++) c->exact[t][i] = linear_number(&c->problem, t, &d->random);
    (void)attn_convert(count, c->exact[t], ATTN_F64, memory, about->dtype, NULL);
    (void)attn_convert(count, memory, about->dtype, c->exact[t], ATTN_F64, NULL);
    return memory;
}

static attn_status execute(linear_check *c, const attn_linear_problem *p, drawing *d, const attn_options *options,
                           attn_error *error)
{
    attn_linear_plan *plan = NULL;
    attn_status status = linear_plan(&plan, p, &c->tensors, options, take, d, error);
    if (status == ATTN_OK) {
        const attn_linear_tensors tensors = linear_of_op(p, &c->tensors);
        const size_t size = attn_linear_plan_workspace_size(plan);
        void *workspace = need_memory((int64_t)size + 1, 1);
        memset(workspace, 0xff, size); /* NaN, to detect reads before writes */
        status = attn_linear_execute(plan, &tensors, workspace, size, error);
        free(workspace);
    }
    attn_linear_plan_destroy(plan);
    return status;
}

ref_linear linear_definition(const attn_linear_problem *p)
{
    const attn_shape *s = &p->shape;
    const double root = sqrt((double)s->dim_qk), scale = p->denominator != ATTN_DENOMINATOR_NONE ? 1 : 1 / root;
    return (ref_linear){.B = s->batch,
                        .Hq = s->heads_q,
                        .Hkv = s->heads_kv,
                        .Sq = s->len_q,
                        .Skv = s->len_kv,
                        .D = s->dim_qk,
                        .Dv = s->dim_v,
                        .M = p->random_features,
                        .map = (ref_map)p->features,
                        .feature_scale = 1 / sqrt(root),
                        .scale = p->scale_kind == ATTN_SCALE_VALUE ? p->scale : scale,
                        .epsilon = p->epsilon > 0 ? p->epsilon : 1e-6,
                        .denominator = (ref_denominator)p->denominator,
                        .causal = p->causal,
                        .decay_channels = p->decay_kind == ATTN_DECAY_CHANNEL};
}

static void define(const linear_check *c, int backward)
{
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    double *const *x = c->exact;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE;
    const int64_t of_n = s->batch * s->heads_q * s->len_q;
    double *n = need_memory(of_n + 1, sizeof *n), *z1 = need_memory(c->count[LINEAR(final_state)] + 1, sizeof *z1);
    ref_linear r = linear_definition(p);
    r.Q = x[LINEAR(q)], r.K = x[LINEAR(k)], r.V = x[LINEAR(v)], r.omega = x[LINEAR(feature_matrix)];
    r.S0 = x[LINEAR(initial_state)], r.z0 = x[LINEAR(initial_sum)];
    r.log_decay = x[LINEAR(decay)], r.beta = x[LINEAR(beta)], r.erase = x[LINEAR(erase)], r.write = x[LINEAR(write)];
    double *stored = need_memory(c->count[LINEAR(o)] + 1, sizeof *stored);
    (void)attn_convert(c->count[LINEAR(o)], c->tensors.o.data, c->stored, stored, ATTN_F64, NULL);
    const ref_linear_gradients g = {.dO = x[LINEAR(grad_o)],
                                    .dS1 = x[LINEAR(grad_final_state)],
                                    .dz1 = x[LINEAR(grad_final_sum)],
                                    .O = c->stored == ATTN_F16 || c->stored == ATTN_BF16 ? stored : NULL,
                                    .dQ = x[LINEAR(grad_q)],
                                    .dK = x[LINEAR(grad_k)],
                                    .dV = x[LINEAR(grad_v)],
                                    .dlog_decay = x[LINEAR(grad_decay)],
                                    .dbeta = x[LINEAR(grad_beta)],
                                    .derase = x[LINEAR(grad_erase)],
                                    .dwrite = x[LINEAR(grad_write)],
                                    .dS0 = x[LINEAR(grad_initial_state)],
                                    .dz0 = x[LINEAR(grad_initial_sum)]};
    if (!ref_linear_forward(&r, x[LINEAR(o)], n, x[LINEAR(final_state)], z1)) end_out_of_memory("the reference");
    if (sum) memcpy(x[LINEAR(denominators)], n, (size_t)of_n * sizeof *n);
    if (sum) memcpy(x[LINEAR(final_sum)], z1, (size_t)c->count[LINEAR(final_sum)] * sizeof *z1);
    if (backward && !ref_linear_backward(&r, &g)) end_out_of_memory("the reference");
    free(stored), free(n), free(z1);
}

static void compare(const linear_check *c, int t, const char *how, linear_verdict *v)
{
    const attn_linear_problem *p = &c->problem;
    const double features = (double)attn_features_count(p->features, p->shape.dim_qk, p->random_features);
    double terms = 16 + features + (double)p->shape.len_kv;
    const int gradient = linear_about(t)->role[ATTN_FORWARD] != ATTN_ROLE_OUTPUT;
    if (gradient) terms += (double)p->shape.dim_v;
    if (t == LINEAR(grad_beta)) terms += features * (double)p->shape.dim_v;
    if (t == LINEAR(grad_decay))
        terms += (p->decay_kind == ATTN_DECAY_HEAD ? features : 1) * (double)p->shape.dim_v; /* the whole state, or a row */
    const double unit = c->compute == ATTN_F64 ? 0x1p-53 : 0x1p-24;
    const attn_dtype type = c->type[t];
    const void *made = linear_slot((attn_linear_tensors *)(uintptr_t)&c->tensors, t)->data;
    const double rounding = type == ATTN_F16 ? 0x1p-11 : type == ATTN_BF16 ? 0x1p-8 : 0;
    const size_t size = attn_dtype_size(type);
    double most = 0;
    for (int64_t i = 0; i < c->count[t]; i++) most = fmax(most, fabs(c->exact[t][i]));
    for (int64_t i = 0; i < c->count[t]; i++) {
        double got;
        (void)attn_convert(1, (const char *)made + (size_t)i * size, type, &got, ATTN_F64, NULL);
        const double error = fabs(got - c->exact[t][i]);
        const double least = type == ATTN_F16 ? 0x1p-25 : 0; /* half the spacing of subnormal numbers */
        const double bound = unit * terms * most + least + rounding * fabs(c->exact[t][i]);
        v->max_error = fmax(v->max_error, error);
        if (error > 0) v->bound_fraction = fmax(v->bound_fraction, error / bound);
        if (!(error <= bound) && v->status == CHECK_PASSED) {
            v->status = CHECK_FAILED;
            snprintf(v->reason, sizeof v->reason, "%s: %s[%lld] is %.9g, the reference has %.9g: %.3g of the bound", how,
                     linear_file_name(t), (long long)i, got, c->exact[t][i], error / bound);
        }
    }
}

attn_status check_linear(const problem_spec *spec, const attn_options *options, linear_verdict *verdict, attn_error *error)
{
    static const char *const forms[] = {"auto", "chunked", "recurrent", "quadratic"};
    linear_check c = {.problem = {0}};
    attn_linear_problem *p = &c.problem;
    drawing d = {&c, {spec->seed}};
    *verdict = (linear_verdict){.status = CHECK_PASSED};
    attn_status status = linear_problem_build(spec, p, &c.tensors, error);
    if (status == ATTN_OK) status = check_size(p, error);
    if (status != ATTN_OK) return status;
    const int backward = p->op == ATTN_BACKWARD;
    c.stored = c.tensors.q.dtype, c.compute = c.stored == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    linear_request_states(p, &c.tensors);
    for (int form = 0; form < 4 && status == ATTN_OK; form++) {
        if (form == ATTN_LINEAR_FORM_RECURRENT && !p->causal) continue;
        if (p->rule == ATTN_LINEAR_RULE_LOW_RANK && (form == ATTN_LINEAR_FORM_CHUNKED || form == ATTN_LINEAR_FORM_QUADRATIC))
            continue;
        attn_linear_problem one = *p;
        one.form = (attn_linear_form)form;
        one.op = ATTN_FORWARD;
        status = execute(&c, &one, &d, options, error);
        one.op = ATTN_BACKWARD;
        if (status == ATTN_OK && backward) status = execute(&c, &one, &d, options, error);
        if (status != ATTN_OK) break;
        define(&c, backward);
        for (int t = 0; t < LINEARS; t++) {
            const attn_role *role = linear_about(t)->role;
            if (c.exact[t] && (role[ATTN_FORWARD] == ATTN_ROLE_OUTPUT || (backward && role[ATTN_BACKWARD] == ATTN_ROLE_OUTPUT)))
                compare(&c, t, forms[form], verdict);
        }
    }
    for (int t = 0; t < LINEARS; t++) {
        if (c.exact[t]) free(linear_slot(&c.tensors, t)->data);
        free(c.exact[t]);
    }
    return status;
}

const char *check_linear_problem(int index)
{
    static const char *const problems[] = {
        "linear-bwd:f32:b2:hq2:sq131:d8:dv6:causal",
        "linear-bwd:f32:hq2:hkv1:sq61:skv103:d20:dv33",
        "linear-bwd:f64:hq4:hkv2:sq67:d9:dv17:causal:phi=relu",
        "linear-bwd:f32:hq2:sq99:d13:dv5:causal:phi=softmax",
        "linear-bwd:f32:sq100:d64:causal:phi=identity:scale=-0.3",
        "linear-bwd:f32:sq77:d8:dv6:causal:phi=favor/24",
        "linear-bwd:f64:sq58:d6:dv9:causal:phi=fourier/15",
        "linear-bwd:f32:sq31:skv29:d6:dv9:phi=trigonometric/15",
        "linear-bwd:f32:hq2:hkv1:sq140:d16:dv11:causal:phi=identity:decay=head",
        "linear-bwd:f32:hq4:hkv2:sq45:d9:dv21:causal:decay=channel",
        "linear-bwd:f64:hq2:sq61:d40:dv70:causal:phi=identity:decay=channel",
        "linear-bwd:f32:hq2:sq40:d8:dv37:causal:phi=softmax:rule=delta",
        "linear-bwd:f32:hq2:hkv1:sq110:d64:dv72:causal:phi=identity:rule=delta:decay=head",
        "linear-bwd:f64:sq34:d7:dv6:causal:phi=identity:rule=delta:decay=channel",
        "linear-bwd:f32:hq2:sq41:d9:dv37:causal:phi=identity:rule=low-rank",
        "linear-bwd:f64:sq35:d8:dv6:causal:phi=identity:rule=low-rank:decay=channel",
        "linear-bwd:bf16:hq2:sq70:d10:dv12:causal:decay=head",
        "linear-bwd:f16:sq50:skv49:d16:phi=softmax",
        "linear:f32:b2:hq2:sq1:d64:causal",
        "linear:f64:sq1:d33:dv65:causal:phi=relu",
    };
    return index < (int)(sizeof problems / sizeof *problems) ? problems[index] : NULL;
}
