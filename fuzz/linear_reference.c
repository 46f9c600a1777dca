/* SPDX-License-Identifier: MIT
 * linear_reference.c - a case of linear attention, entry by entry, against ref/ within the bound of tests/linear/linear_case.h. */
#include <math.h>
#include <stdlib.h>

#include "attn_ref.h"
#include "linear_case.h"

typedef struct entry {
    const linear_case *c;
    int64_t e, tokens[L_TENSORS]; /* of its sequence; rows past them are 0 */
    int64_t count[L_TENSORS];
    double *numbers[L_TENSORS], largest[L_TENSORS];
    double argument; /* largest_argument */
} entry;

static int64_t features_of(const linear_case *c)
{
    return attn_features_count(c->problem.features, c->problem.shape.dim_qk, c->problem.random_features);
}

static attn_dtype compute_of(const linear_case *c) { return c->blocks[L_Q].dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

static double *spare(double **slot, int64_t count)
{
    if (!*slot) *slot = calloc((size_t)count + 1, sizeof **slot);
    if (!*slot) abort();
    return *slot;
}

/* A dense array for the entry's part of a tensor, filled if it is an input; NULL if the tensor is absent. */
static void open_tensor(entry *x, int t)
{
    const block *b = &x->c->blocks[t];
    if (!linear_has(x->c, t) || t == L_LENGTHS) return;
    const int64_t most = x->tokens[t] < b->shape[2] ? x->tokens[t] : b->shape[2];
    x->count[t] = b->shape[1] * most * b->shape[3];
    double *at = spare(&x->numbers[t], x->count[t]);
    for (int64_t h = 0; h < b->shape[1] && !b->output; h++)
        for (int64_t i = 0; i < most; i++)
            for (int64_t k = 0; k < b->shape[3]; k++) *at++ = block_get(b, b->shape[0] > 1 ? x->e : 0, h, i, k);
}

/* Largest sum of |w_c x_c| + x_c^2 / 2 of a random feature, the argument of its sine or exponential; 0 for other maps. */
static double largest_argument(const entry *x)
{
    const attn_linear_problem *p = &x->c->problem;
    const int64_t D = p->shape.dim_qk;
    const double *const w = x->numbers[L_OMEGA], scale = D > 0 ? 1 / sqrt(sqrt((double)D)) : 1;
    double largest = 0;
    if (p->features < ATTN_FEATURES_FAVOR || !w || D == 0) return 0;
    for (int t = L_Q; t <= L_K; t++)
        for (int64_t row = 0; row < x->count[t] / D; row++)
            for (int64_t m = 0; m < p->random_features; m++) {
                double sum = 0;
                for (int64_t c = 0; c < D; c++) {
                    const double q = scale * x->numbers[t][row * D + c];
                    sum += fabs(w[m * D + c] * q) + q * q / 2;
                }
                largest = fmax(largest, sum);
            }
    return largest;
}

static void check_output(const entry *x, int t)
{
    const linear_case *c = x->c;
    const attn_linear_problem *p = &c->problem;
    const block *b = &c->blocks[t];
    if (!x->numbers[t] || !b->output) return;
    const int64_t most = x->tokens[t] < b->shape[2] ? x->tokens[t] : b->shape[2];
    const double f = (double)features_of(c), dv = (double)p->shape.dim_v;
    /* A feature's argument is a sum of dim_qk products; o and the gradients have features of queries and of keys. */
    double terms = 16 + f + (double)p->shape.len_kv + 2 * ((double)p->shape.dim_qk + 2) * x->argument;
    if (t >= L_DQ) terms += dv;
    if (t == L_DBETA) terms += f * dv;
    if (t == L_DDECAY) terms += (p->decay_kind == ATTN_DECAY_HEAD ? f : 1) * dv;
    const double unit = compute_of(c) == ATTN_F64 ? 0x1p-53 : 0x1p-24;
    const double rounding = b->dtype == ATTN_F16 ? 0x1p-11 : b->dtype == ATTN_BF16 ? 0x1p-8 : b->dtype == ATTN_F32 ? 0x1p-24 : 0;
    const double least = b->dtype == ATTN_F16 ? 0x1p-24 : 0x1p-126;
    if (t >= L_DQ && x->numbers[L_N]) { /* gradients through 1 / n */
        double min_n = 1;
        for (int64_t i = 0;
             i < c->blocks[L_N].shape[1] * (x->tokens[L_N] < c->blocks[L_N].shape[2] ? x->tokens[L_N] : c->blocks[L_N].shape[2]);
             i++) {
            const double epsilon = p->epsilon > 0 ? p->epsilon : 1e-6, n = x->numbers[L_N][i];
            min_n = fmin(min_n, p->denominator == ATTN_DENOMINATOR_ADD ? n + epsilon : fmax(n, epsilon));
        }
        terms /= min_n > 0 ? min_n : 1;
    }
    for (int64_t h = 0; h < b->shape[1]; h++)
        for (int64_t i = 0; i < b->shape[2]; i++)
            for (int64_t k = 0; k < b->shape[3]; k++) {
                const double exact = i < most ? x->numbers[t][(h * most + i) * b->shape[3] + k] : 0;
                const double got = block_get(b, x->e, h, i, k),
                             bound = unit * terms * x->largest[t] + least + rounding * fabs(exact);
                if (b->dtype == ATTN_F16 && fabs(exact) + bound >= 65504) continue;
                if (!(fabs(got - exact) <= (i < most ? bound : 0)))
                    finding("ref: %s[%lld,%lld,%lld,%lld] is %.9g, should be %.9g, off by %.3g, bound %.3g", b->name,
                            (long long)x->e, (long long)h, (long long)i, (long long)k, got, exact, fabs(got - exact), bound);
            }
}

static int op_gives(const linear_case *c, int t) { return c->problem.op == ATTN_FORWARD ? t < L_DO : t >= L_DQ; }

/* All outputs of the operation from the inputs in x, by definition. */
static void define(const entry *x, int absolute)
{
    const linear_case *c = x->c;
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const double root = s->dim_qk > 0 ? sqrt((double)s->dim_qk) : 1;
    double *const *t = x->numbers;
    const ref_linear r = {.B = 1,
                          .Hq = s->heads_q,
                          .Hkv = s->heads_kv,
                          .Sq = x->tokens[L_Q],
                          .Skv = x->tokens[L_K],
                          .D = s->dim_qk,
                          .Dv = s->dim_v,
                          .M = p->random_features,
                          .Q = t[L_Q],
                          .K = t[L_K],
                          .V = t[L_V],
                          .map = (ref_map)p->features,
                          .omega = t[L_OMEGA],
                          .feature_scale = 1 / sqrt(root),
                          .scale = p->scale_kind == ATTN_SCALE_VALUE         ? p->scale
                                   : p->denominator != ATTN_DENOMINATOR_NONE ? 1
                                                                             : 1 / root,
                          .epsilon = p->epsilon > 0 ? p->epsilon : 1e-6,
                          .denominator = (ref_denominator)p->denominator,
                          .causal = p->causal,
                          .log_decay = t[L_DECAY],
                          .decay_channels = p->decay_kind == ATTN_DECAY_CHANNEL,
                          .beta = t[L_BETA],
                          .erase = t[L_ERASE],
                          .write = t[L_WRITE],
                          .S0 = t[L_S0],
                          .z0 = t[L_Z0],
                          .absolute = absolute};
    const ref_linear_gradients g = {.dO = t[L_DO],
                                    .dS1 = t[L_DS1],
                                    .dz1 = t[L_DZ1],
                                    .O = t[L_O],
                                    .dQ = t[L_DQ],
                                    .dK = t[L_DK],
                                    .dV = t[L_DV],
                                    .dlog_decay = t[L_DDECAY],
                                    .dbeta = t[L_DBETA],
                                    .derase = t[L_DERASE],
                                    .dwrite = t[L_DWRITE],
                                    .dS0 = t[L_DS0],
                                    .dz0 = t[L_DZ0]};
    if (!(p->op == ATTN_FORWARD ? ref_linear_forward(&r, t[L_O], t[L_N], t[L_S1], t[L_Z1]) : ref_linear_backward(&r, &g))) abort();
}

/* The largest number of each output, or of the sums of absolute values behind it: gradients of a maximum, or those of equal values,
 * cancel to 0.  (Under the other rules such sums grow with every token, where the state itself does not.) */
static void find_largest(entry *x)
{
    double *kept[L_TENSORS] = {0};
    const int absolute = x->c->problem.rule == ATTN_LINEAR_RULE_ADD;
    for (int t = 0; t < L_TENSORS; t++) {
        const int64_t n = x->count[t];
        if (!x->numbers[t] || !absolute) continue;
        kept[t] = x->numbers[t];
        x->numbers[t] = NULL;
        double *at = spare(&x->numbers[t], n);
        for (int64_t i = 0; i < n; i++)
            at[i] = t == L_Q || t == L_K || t == L_OMEGA || t == L_DECAY ? kept[t][i] : fabs(kept[t][i]);
    }
    if (absolute) define(x, 1);
    for (int t = 0; t < L_TENSORS; t++) {
        x->largest[t] = 1; /* sums of numbers of about 1 may cancel to 0 */
        for (int64_t i = 0; x->numbers[t] && op_gives(x->c, t) && i < x->count[t]; i++)
            x->largest[t] = fmax(x->largest[t], fabs(x->numbers[t][i]));
        if (!absolute) continue;
        free(x->numbers[t]);
        x->numbers[t] = kept[t];
    }
}

static void compare_entry(const linear_case *c, int64_t e)
{
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const int64_t n = linear_length(c, e), rows = p->causal ? n : s->len_q, f = features_of(c);
    entry x = {.c = c, .e = e};
    for (int t = 0; t < L_TENSORS; t++) {
        const attn_axis axis = c->about[t].axes[2];
        x.tokens[t] = axis == ATTN_AXIS_KEY ? n : axis == ATTN_AXIS_QUERY ? rows : INT64_MAX;
        open_tensor(&x, t);
    }
    if (p->op == ATTN_FORWARD) { /* which ref/ computes whether the call has them or not */
        const int64_t state = s->heads_kv * f * s->dim_v;
        x.count[L_O] = s->heads_q * rows * s->dim_v, x.count[L_N] = s->heads_q * rows;
        x.count[L_S1] = state, x.count[L_Z1] = s->heads_kv * f;
        for (int t = 0; t < L_TENSORS; t++)
            if (t == L_O || t == L_N || t == L_S1 || t == L_Z1) spare(&x.numbers[t], x.count[t]);
    }
    define(&x, 0);
    find_largest(&x);
    x.argument = largest_argument(&x);
    for (int t = 0; t < L_TENSORS; t++) check_output(&x, t);
    for (int t = 0; t < L_TENSORS; t++) free(x.numbers[t]);
}

void linear_reference(const linear_case *c)
{
    const attn_shape *s = &c->problem.shape;
    const int64_t tokens = s->heads_q * (s->len_q + s->len_kv) + s->heads_kv * s->len_kv;
    if ((double)tokens * (double)features_of(c) * (double)(s->dim_v + 1) > 1e6) return;
    for (int64_t e = 0; e < s->batch; e++) compare_entry(c, e);
}
