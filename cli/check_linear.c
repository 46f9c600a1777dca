/* SPDX-License-Identifier: MIT
 * check_linear.c - see check_linear.h. */
#include "check_linear.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_ref.h"
#include "bench/linear.h"
#include "check/random.h"
#include "failure.h"

/* Inputs, what forward writes, what backward writes. */
enum {
    Q,
    K,
    V,
    OMEGA,
    DECAY,
    BETA,
    ERASE,
    WRITE,
    S0,
    Z0,
    DO,
    DS1,
    DZ1,
    O,
    N,
    S1,
    Z1,
    DQ,
    DK,
    DV,
    DDECAY,
    DBETA,
    DERASE,
    DWRITE,
    DS0,
    DZ0,
    ALL
};

static const char *const names[ALL] = {"q",  "k",  "v",      "omega", "decay",  "beta",   "erase", "write", "s0",
                                       "z0", "do", "ds1",    "dz1",   "o",      "n",      "s1",    "z1",    "dq",
                                       "dk", "dv", "ddecay", "dbeta", "derase", "dwrite", "ds0",   "dz0"};

typedef struct linear_check {
    attn_linear_problem problem;
    attn_dtype stored, compute;
    int64_t count[ALL];
    double *exact[ALL];
    void *data[ALL];
} linear_check;

static attn_dtype type_of(const linear_check *c, int t)
{
    return t <= V || t == DO || t == O || (t >= DQ && t <= DV) ? c->stored : c->compute;
}

static attn_status measure(linear_check *c, attn_error *error)
{
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const int64_t f = attn_features_count(p->features, s->dim_qk, p->random_features);
    const double most = (double)s->batch * (double)s->heads_q * ((double)s->len_q + (double)s->len_kv + (double)f) *
                        ((double)f + (double)s->dim_v + (double)s->dim_qk) * (double)(s->len_kv + 1);
    if (most > 1e10) return failure(error, ATTN_ERR_UNSUPPORTED, "the reference keeps a state for each token: too many here");
    const int64_t q = s->batch * s->heads_q * s->len_q, k = s->batch * s->heads_kv * s->len_kv, heads = s->batch * s->heads_kv;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE;
    int64_t *n = c->count;
    n[Q] = n[DQ] = q * s->dim_qk;
    n[K] = n[DK] = k * s->dim_qk;
    n[V] = n[DV] = k * s->dim_v;
    n[DO] = n[O] = q * s->dim_v;
    n[N] = sum ? q : 0;
    n[OMEGA] = p->random_features * s->dim_qk;
    n[DECAY] = n[DDECAY] = p->decay == ATTN_DECAY_NONE ? 0 : p->decay == ATTN_DECAY_CHANNEL ? k * f : k;
    n[BETA] = n[DBETA] = p->rule == ATTN_RULE_DELTA ? k : 0;
    n[ERASE] = n[WRITE] = n[DERASE] = n[DWRITE] = p->rule == ATTN_RULE_LOW_RANK ? k * f : 0;
    n[S0] = n[S1] = n[DS1] = n[DS0] = heads * f * s->dim_v;
    n[Z0] = n[Z1] = n[DZ1] = n[DZ0] = sum ? heads * f : 0;
    return ATTN_OK;
}

/* Within +-1; keys of the other rules short enough that the state stays bounded. */
static double drawn(const linear_check *c, int t, random_state *random)
{
    const double x = 2 * random_unit(random) - 1, width = sqrt((double)c->problem.shape.dim_qk + 1);
    if (t == DECAY) return -0.5 * (1 + x);
    if (t == BETA) return 0.5 * (1 + x);
    if (t == Z0) return 1 + x;
    if (t == ERASE || t == WRITE || (t == K && c->problem.rule)) return x / width;
    return x;
}

static attn_status draw(linear_check *c, uint64_t seed, attn_error *error)
{
    random_state random = {seed};
    for (int t = 0; t < ALL; t++) {
        const attn_dtype type = type_of(c, t);
        c->exact[t] = need_memory(c->count[t] + 1, sizeof(double));
        c->data[t] = need_memory(c->count[t] + 1, sizeof(double));
        for (int64_t i = 0; t <= DZ1 && i < c->count[t]; i++) c->exact[t][i] = drawn(c, t, &random);
        if (t <= DZ1) attn_convert(c->data[t], type, c->exact[t], ATTN_F64, c->count[t]);
        if (t == OMEGA && c->count[t]) {
            const attn_status status = attn_random_features(ATTN_ROWS_ORTHOGONAL, c->problem.random_features,
                                                            c->problem.shape.dim_qk, seed, 0, c->data[t], c->compute, error);
            if (status != ATTN_OK) return status;
        }
        if (t <= DZ1) attn_convert(c->exact[t], ATTN_F64, c->data[t], type, c->count[t]);
    }
    return ATTN_OK;
}

static attn_status execute(const linear_check *c, const attn_linear_problem *p, const attn_options *options, attn_error *error)
{
    void *const *d = c->data;
    const attn_linear_args args = {.struct_size = sizeof args,
                                   .q = d[Q],
                                   .k = d[K],
                                   .v = d[V],
                                   .o = d[O],
                                   .omega = d[OMEGA],
                                   .decay = d[DECAY],
                                   .beta = d[BETA],
                                   .erase = d[ERASE],
                                   .write = d[WRITE],
                                   .initial_state = d[S0],
                                   .initial_sum = d[Z0],
                                   .final_state = d[S1],
                                   .final_sum = d[Z1],
                                   .denominators = d[N],
                                   .grad_o = d[DO],
                                   .grad_final_state = d[DS1],
                                   .grad_final_sum = d[DZ1],
                                   .grad_q = d[DQ],
                                   .grad_k = d[DK],
                                   .grad_v = d[DV],
                                   .grad_decay = d[DDECAY],
                                   .grad_beta = d[DBETA],
                                   .grad_erase = d[DERASE],
                                   .grad_write = d[DWRITE],
                                   .grad_initial_state = d[DS0],
                                   .grad_initial_sum = d[DZ0]};
    attn_linear_plan *plan;
    attn_status status = attn_linear_plan_create(&plan, p, options, error);
    if (status != ATTN_OK) return status;
    const size_t size = attn_linear_workspace_size(plan);
    void *workspace = need_memory((int64_t)size + 1, 1);
    memset(workspace, 0xff, size); /* NaN: nothing is read before it is written */
    status = attn_linear_execute(plan, &args, workspace, size, error);
    free(workspace);
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
                        .decay_channels = p->decay == ATTN_DECAY_CHANNEL};
}

static void define(const linear_check *c, int backward)
{
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    double *const *x = c->exact;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE;
    double *n = need_memory(s->batch * s->heads_q * s->len_q + 1, sizeof *n), *z1 = need_memory(c->count[S1] + 1, sizeof *z1);
    ref_linear r = linear_definition(p);
    r.Q = x[Q], r.K = x[K], r.V = x[V], r.omega = x[OMEGA], r.S0 = x[S0];
    if (sum) r.z0 = x[Z0];
    if (p->decay) r.log_decay = x[DECAY];
    if (p->rule == ATTN_RULE_DELTA) r.beta = x[BETA];
    if (p->rule == ATTN_RULE_LOW_RANK) r.erase = x[ERASE], r.write = x[WRITE];
    double *stored = need_memory(c->count[O] + 1, sizeof *stored);
    attn_convert(stored, ATTN_F64, c->data[O], c->stored, c->count[O]);
    const ref_linear_gradients g = {.dO = x[DO],
                                    .dS1 = x[DS1],
                                    .dz1 = sum ? x[DZ1] : NULL,
                                    .O = c->stored == ATTN_F16 || c->stored == ATTN_BF16 ? stored : NULL,
                                    .dQ = x[DQ],
                                    .dK = x[DK],
                                    .dV = x[DV],
                                    .dlog_decay = x[DDECAY],
                                    .dbeta = x[DBETA],
                                    .derase = x[DERASE],
                                    .dwrite = x[DWRITE],
                                    .dS0 = x[DS0],
                                    .dz0 = sum ? x[DZ0] : NULL};
    ref_linear_forward(&r, x[O], n, x[S1], z1);
    if (sum) memcpy(x[N], n, (size_t)c->count[N] * sizeof *n), memcpy(x[Z1], z1, (size_t)c->count[Z1] * sizeof *z1);
    if (backward) ref_linear_backward(&r, &g);
    free(stored), free(n), free(z1);
}

static void compare(const linear_check *c, int t, const char *how, linear_verdict *v)
{
    const attn_linear_problem *p = &c->problem;
    const double features = (double)attn_features_count(p->features, p->shape.dim_qk, p->random_features);
    double terms = 16 + features + (double)p->shape.len_kv;
    if (t >= DQ) terms += (double)p->shape.dim_v;
    if (t == DBETA) terms += features * (double)p->shape.dim_v;
    if (t == DDECAY) terms += (p->decay == ATTN_DECAY_HEAD ? features : 1) * (double)p->shape.dim_v; /* the whole state, or a row */
    const double unit = c->compute == ATTN_F64 ? 0x1p-53 : 0x1p-24;
    const attn_dtype type = type_of(c, t);
    const double rounding = type == ATTN_F16 ? 0x1p-11 : type == ATTN_BF16 ? 0x1p-8 : 0;
    const size_t size = attn_dtype_size(type);
    double most = 0;
    for (int64_t i = 0; i < c->count[t]; i++) most = fmax(most, fabs(c->exact[t][i]));
    for (int64_t i = 0; i < c->count[t]; i++) {
        double got;
        attn_convert(&got, ATTN_F64, (const char *)c->data[t] + (size_t)i * size, type, 1);
        const double error = fabs(got - c->exact[t][i]);
        const double least = type == ATTN_F16 ? 0x1p-25 : 0; /* half the distance of its subnormal numbers */
        const double bound = unit * terms * most + least + rounding * fabs(c->exact[t][i]);
        v->max_error = fmax(v->max_error, error);
        if (error > 0) v->bound_fraction = fmax(v->bound_fraction, error / bound);
        if (!(error <= bound) && v->status == CHECK_PASSED) {
            v->status = CHECK_FAILED;
            snprintf(v->reason, sizeof v->reason, "%s: %s[%lld] is %.9g, the reference has %.9g: %.3g of the bound", how, names[t],
                     (long long)i, got, c->exact[t][i], error / bound);
        }
    }
}

attn_status check_linear(const problem_spec *spec, attn_isa isa, int threads, linear_verdict *verdict, attn_error *error)
{
    static const char *const forms[] = {"auto", "chunked", "recurrent", "quadratic"};
    linear_check c = {.problem = {0}};
    attn_linear_problem *p = &c.problem;
    const attn_options options = {.struct_size = sizeof options, .isa = isa, .threads = threads};
    *verdict = (linear_verdict){.status = CHECK_PASSED};
    attn_status status = linear_problem_build(spec, p, error);
    const int backward = p->op == ATTN_BACKWARD;
    c.stored = p->q.dtype, c.compute = c.stored == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    p->op = ATTN_FORWARD;
    p->initial_state = p->final_state = 1;
    p->want_denominator = p->denominator != ATTN_DENOMINATOR_NONE;
    if (status == ATTN_OK) status = measure(&c, error);
    if (status == ATTN_OK) status = draw(&c, spec->seed, error);
    for (int form = 0; form < 4 && status == ATTN_OK; form++) {
        if (form == ATTN_LINEAR_RECURRENT && !p->causal) continue;
        if (p->rule == ATTN_RULE_LOW_RANK && (form == ATTN_LINEAR_CHUNKED || form == ATTN_LINEAR_QUADRATIC)) continue;
        attn_linear_problem forward = *p;
        forward.form = (attn_linear_form)form;
        status = execute(&c, &forward, &options, error);
        forward.op = ATTN_BACKWARD, forward.final_state = 0, forward.grad_final_state = forward.grad_initial_state = 1;
        if (status == ATTN_OK && backward) status = execute(&c, &forward, &options, error);
        if (status != ATTN_OK) break;
        define(&c, backward);
        for (int t = O; t < (backward ? ALL : DQ); t++) compare(&c, t, forms[form], verdict);
    }
    for (int t = 0; t < ALL; t++) free(c.exact[t]), free(c.data[t]);
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
