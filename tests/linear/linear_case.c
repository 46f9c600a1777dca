/* SPDX-License-Identifier: MIT
 * linear_case.c - see linear_case.h. */
#include "linear_case.h"

#include <math.h>

const char *const linear_tensor_names[TENSORS] = {"q",  "k",  "v",      "omega", "decay",  "beta",   "erase", "write", "s0",
                                                  "z0", "do", "ds1",    "dz1",   "o",      "n",      "s1",    "z1",    "dq",
                                                  "dk", "dv", "ddecay", "dbeta", "derase", "dwrite", "ds0",   "dz0"};

attn_dtype linear_case_type(const linear_case *c, int tensor)
{
    const attn_dtype compute = c->dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    switch (tensor) {
    case T_Q:
    case T_K:
    case T_V:
    case T_DO:
    case T_O:
    case T_DQ:
    case T_DK:
    case T_DV:
        return c->dtype;
    default:
        return compute;
    }
}

double linear_case_at(const linear_case *c, int tensor, int64_t i)
{
    double x;
    const size_t size = attn_dtype_size(linear_case_type(c, tensor));
    (void)attn_convert(1, (const char *)c->data[tensor] + (size_t)i * size, linear_case_type(c, tensor), &x, ATTN_F64, NULL);
    return x;
}

static void count_elements(linear_case *c)
{
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const int64_t f = attn_features_count(p->features, s->dim_qk, p->random_features);
    const int64_t q = s->batch * s->heads_q * s->len_q, k = s->batch * s->heads_kv * s->len_kv, heads = s->batch * s->heads_kv;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE;
    int64_t *n = c->count;
    n[T_Q] = n[T_DQ] = q * s->dim_qk;
    n[T_K] = n[T_DK] = k * s->dim_qk;
    n[T_V] = n[T_DV] = k * s->dim_v;
    n[T_DO] = n[T_O] = q * s->dim_v;
    n[T_N] = sum ? q : 0;
    n[T_OMEGA] = p->random_features * s->dim_qk;
    n[T_DECAY] = n[T_DDECAY] = !c->decays ? 0 : k * (p->decay_kind == ATTN_DECAY_CHANNEL ? f : 1);
    n[T_BETA] = n[T_DBETA] = p->rule == ATTN_LINEAR_RULE_DELTA ? k : 0;
    n[T_ERASE] = n[T_DERASE] = n[T_WRITE] = n[T_DWRITE] = p->rule == ATTN_LINEAR_RULE_LOW_RANK ? k * f : 0;
    n[T_S0] = n[T_DS1] = n[T_S1] = n[T_DS0] = heads * f * s->dim_v;
    n[T_Z0] = n[T_DZ1] = n[T_Z1] = n[T_DZ0] = sum ? heads * f : 0;
}

static double drawn(int tensor, random_state *random)
{
    const double x = random_signed(random);
    if (tensor == T_DECAY) return -0.5 * (1 + x); /* a factor of e^-1 per token at least */
    if (tensor == T_BETA) return 0.5 * (1 + x);
    if (tensor == T_ERASE || tensor == T_WRITE) return 0.3 * x;
    if (tensor == T_Z0) return 1 + x; /* a sum of positive features */
    if (tensor == T_OMEGA) return 1.7 * x;
    return x;
}

/* The memory of a tensor, or NULL if the problem does not have it. */
static void *present(const linear_case *c, int tensor)
{
    const attn_linear_problem *p = &c->problem;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE;
    switch (tensor) {
    case T_OMEGA:
        return p->random_features > 0 ? c->data[tensor] : NULL;
    case T_DECAY:
    case T_DDECAY:
        return c->decays ? c->data[tensor] : NULL;
    case T_BETA:
    case T_DBETA:
        return p->rule == ATTN_LINEAR_RULE_DELTA ? c->data[tensor] : NULL;
    case T_ERASE:
    case T_WRITE:
    case T_DERASE:
    case T_DWRITE:
        return p->rule == ATTN_LINEAR_RULE_LOW_RANK ? c->data[tensor] : NULL;
    case T_N:
    case T_Z0:
    case T_DZ0:
    case T_Z1:
    case T_DZ1:
        return sum ? c->data[tensor] : NULL;
    default:
        return c->data[tensor];
    }
}

void linear_case_draw(linear_case *c, attn_dtype dtype, uint64_t seed)
{
    attn_linear_problem *p = &c->problem;
    random_state random = {seed * 977 + 12345};
    c->dtype = dtype;
    p->struct_size = sizeof *p;
    count_elements(c);
    for (int t = 0; t < TENSORS; t++) {
        const attn_dtype type = linear_case_type(c, t);
        const size_t n = (size_t)c->count[t];
        c->exact[t] = calloc(n + 1, sizeof(double));
        c->data[t] = calloc(n + 1, attn_dtype_size(type));
        assert_non_null(c->exact[t]);
        assert_non_null(c->data[t]);
        for (size_t i = 0; t <= T_DZ1 && i < n; i++) c->exact[t][i] = drawn(t, &random);
        (void)attn_convert(c->count[t], c->exact[t], ATTN_F64, c->data[t], type, NULL);
        (void)attn_convert(c->count[t], c->data[t], type, c->exact[t], ATTN_F64, NULL);
    }
    const attn_linear_tensors args = {.struct_size = sizeof args,
                                      .q = {present(c, T_Q), dtype, {0, 0, 0, 0}},
                                      .k.data = present(c, T_K),
                                      .v.data = present(c, T_V),
                                      .o.data = present(c, T_O),
                                      .feature_matrix.data = present(c, T_OMEGA),
                                      .decay.data = present(c, T_DECAY),
                                      .beta.data = present(c, T_BETA),
                                      .erase.data = present(c, T_ERASE),
                                      .write.data = present(c, T_WRITE),
                                      .initial_state.data = present(c, T_S0),
                                      .initial_sum.data = present(c, T_Z0),
                                      .final_state.data = present(c, T_S1),
                                      .final_sum.data = present(c, T_Z1),
                                      .denominators.data = present(c, T_N),
                                      .grad_o.data = present(c, T_DO),
                                      .grad_final_state.data = present(c, T_DS1),
                                      .grad_final_sum.data = present(c, T_DZ1),
                                      .grad_q.data = present(c, T_DQ),
                                      .grad_k.data = present(c, T_DK),
                                      .grad_v.data = present(c, T_DV),
                                      .grad_decay.data = present(c, T_DDECAY),
                                      .grad_beta.data = present(c, T_DBETA),
                                      .grad_erase.data = present(c, T_DERASE),
                                      .grad_write.data = present(c, T_DWRITE),
                                      .grad_initial_state.data = present(c, T_DS0),
                                      .grad_initial_sum.data = present(c, T_DZ0),
                                      .lengths.data = c->lengths};
    c->args = args;
}

void linear_case_tensors(const linear_case *c, attn_op op, attn_linear_tensors *tensors)
{
    attn_tensor_description d = {.struct_size = sizeof d};
    *tensors = c->args;
    for (int i = 0; attn_tensor_describe(ATTN_FAMILY_LINEAR, i, &d, NULL) == ATTN_OK; i++)
        if (d.role[op] == ATTN_ROLE_NONE) memset((char *)tensors + d.offset, 0, sizeof(attn_input));
    if (op == ATTN_BACKWARD && c->problem.denominator == ATTN_DENOMINATOR_NONE) memset(&tensors->o, 0, sizeof tensors->o);
}

void linear_case_free(linear_case *c)
{
    for (int t = 0; t < TENSORS; t++) {
        free(c->exact[t]);
        free(c->data[t]);
    }
}

static void execute(const linear_case *c, const attn_linear_problem *problem, int threads)
{
    attn_linear_tensors tensors;
    linear_case_tensors(c, problem->op, &tensors);
    attn_options options = {.struct_size = sizeof options, .threads = threads};
    attn_linear_plan *plan;
    attn_error error;
    if (attn_linear_plan_create(&plan, problem, &tensors, &options, &error)) fail_msg("%s", error.message);
    const size_t size = attn_linear_plan_workspace_size(plan);
    unsigned char *workspace = malloc(size + 64);
    assert_non_null(workspace);
    memset(workspace, 0xff, size + 64); /* NaN everywhere: nothing may be read before it is written */
    if (attn_linear_execute(plan, &tensors, workspace, size, &error)) fail_msg("%s", error.message);
    for (size_t i = 0; i < 64; i++) assert_int_equal(workspace[size + i], 0xff);
    free(workspace);
    attn_linear_plan_destroy(plan);
}

void linear_case_forward(linear_case *c, int threads) { execute(c, &c->problem, threads); }

void linear_case_run(linear_case *c, int threads)
{
    attn_linear_problem back = c->problem;
    linear_case_forward(c, threads);
    back.op = ATTN_BACKWARD;
    execute(c, &back, threads);
}

void linear_case_define(linear_case *c)
{
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    double **x = c->exact;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE;
    double *n = calloc((size_t)(s->batch * s->heads_q * s->len_q) + 1, sizeof *n);
    const int64_t f = attn_features_count(p->features, s->dim_qk, p->random_features);
    double *z1 = calloc((size_t)(s->batch * s->heads_kv * f) + 1, sizeof *z1);
    const double root = sqrt((double)s->dim_qk);
    assert_true(n && z1);
    ref_linear r = {.B = s->batch,
                    .Hq = s->heads_q,
                    .Hkv = s->heads_kv,
                    .Sq = s->len_q,
                    .Skv = s->len_kv,
                    .D = s->dim_qk,
                    .Dv = s->dim_v,
                    .M = p->random_features,
                    .Q = x[T_Q],
                    .K = x[T_K],
                    .V = x[T_V],
                    .map = (ref_map)p->features,
                    .omega = x[T_OMEGA],
                    .feature_scale = p->feature_scale != 0 ? p->feature_scale : 1 / sqrt(root),
                    .scale = p->scale_kind == ATTN_SCALE_VALUE ? p->scale
                             : sum                             ? 1
                                                               : 1 / root,
                    .epsilon = p->epsilon > 0 ? p->epsilon : 1e-6,
                    .denominator = (ref_denominator)p->denominator,
                    .causal = p->causal,
                    .log_decay = c->decays ? x[T_DECAY] : NULL,
                    .decay_channels = p->decay_kind == ATTN_DECAY_CHANNEL,
                    .beta = p->rule == ATTN_LINEAR_RULE_DELTA ? x[T_BETA] : NULL,
                    .erase = p->rule == ATTN_LINEAR_RULE_LOW_RANK ? x[T_ERASE] : NULL,
                    .write = p->rule == ATTN_LINEAR_RULE_LOW_RANK ? x[T_WRITE] : NULL,
                    .S0 = x[T_S0],
                    .z0 = sum ? x[T_Z0] : NULL};
    ref_linear_gradients g = {.dO = x[T_DO],
                              .dS1 = x[T_DS1],
                              .dz1 = sum ? x[T_DZ1] : NULL,
                              .dQ = x[T_DQ],
                              .dK = x[T_DK],
                              .dV = x[T_DV],
                              .dlog_decay = x[T_DDECAY],
                              .dbeta = x[T_DBETA],
                              .derase = x[T_DERASE],
                              .dwrite = x[T_DWRITE],
                              .dS0 = x[T_DS0],
                              .dz0 = sum ? x[T_DZ0] : NULL};
    double *stored = calloc((size_t)c->count[T_O] + 1, sizeof *stored);
    assert_non_null(stored);
    (void)attn_convert(c->count[T_O], c->data[T_O], c->dtype, stored, ATTN_F64, NULL);
    if (c->dtype == ATTN_F16 || c->dtype == ATTN_BF16) g.O = stored;
    ref_linear_forward(&r, x[T_O], n, x[T_S1], z1);
    for (int64_t i = 0; i < c->count[T_N]; i++) x[T_N][i] = n[i];
    for (int64_t i = 0; i < c->count[T_Z1]; i++) x[T_Z1][i] = z1[i];
    ref_linear_backward(&r, &g);
    free(stored);
    free(n);
    free(z1);
}

double linear_case_error(const linear_case *c, int tensor)
{
    const attn_linear_problem *p = &c->problem;
    const attn_dtype type = linear_case_type(c, tensor);
    const double features = (double)attn_features_count(p->features, p->shape.dim_qk, p->random_features);
    double terms = 16 + features + (double)p->shape.len_kv;
    if (tensor >= T_DQ) terms += (double)p->shape.dim_v;
    if (tensor == T_DBETA) terms += features * (double)p->shape.dim_v;
    if (tensor == T_DDECAY)
        terms += (p->decay_kind == ATTN_DECAY_HEAD ? features : 1) * (double)p->shape.dim_v; /* the whole state, or a row */
    const double unit = c->dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24;
    const double rounding = type == ATTN_F16 ? 0x1p-11 : type == ATTN_BF16 ? 0x1p-8 : 0;
    double most = 0, worst = 0;
    for (int64_t i = 0; i < c->count[tensor]; i++) most = fmax(most, fabs(c->exact[tensor][i]));
    for (int64_t i = 0; i < c->count[tensor]; i++) {
        const double error = fabs(linear_case_at(c, tensor, i) - c->exact[tensor][i]);
        const double least = type == ATTN_F16 ? 0x1p-25 : 0; /* half the distance of its subnormal numbers */
        const double bound = unit * terms * most + least + rounding * fabs(c->exact[tensor][i]);
        if (!(error <= bound * worst)) worst = error == 0 ? worst : error / bound;
    }
    return worst;
}
