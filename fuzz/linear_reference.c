/* SPDX-License-Identifier: MIT
 * linear_reference.c - a case of linear attention, entry by entry, against ref/ within the bound of tests/linear/linear_case.h. */
#include <math.h>
#include <stdlib.h>

#include "attn_ref.h"
#include "linear_case.h"

typedef struct entry {
    const linear_case *c;
    int64_t e, tokens[L_TENSORS]; /* of its sequence; rows past them are 0 */
    double *numbers[L_TENSORS];
} entry;

static int64_t features_of(const linear_case *c)
{
    return attn_features_count(c->problem.features, c->problem.shape.dim_qk, c->problem.random_features);
}

static attn_dtype compute_of(const linear_case *c) { return c->blocks[L_Q].dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32; }

/* A dense array for the entry's part of a tensor, filled if it is an input; NULL if the tensor is absent. */
static void open_tensor(entry *x, int t)
{
    const block *b = &x->c->blocks[t];
    if (!linear_has(x->c, t) || t == L_LENGTHS) return;
    const int64_t most = x->tokens[t] < b->shape[2] ? x->tokens[t] : b->shape[2];
    double *at = x->numbers[t] = calloc((size_t)(b->shape[1] * most * b->shape[3]) + 1, sizeof *at);
    if (!at) abort();
    for (int64_t h = 0; h < b->shape[1] && !b->output; h++)
        for (int64_t i = 0; i < most; i++)
            for (int64_t k = 0; k < b->shape[3]; k++) *at++ = block_get(b, b->shape[0] > 1 ? x->e : 0, h, i, k);
}

static void check_output(const entry *x, int t)
{
    const linear_case *c = x->c;
    const attn_linear_problem *p = &c->problem;
    const block *b = &c->blocks[t];
    if (!x->numbers[t] || !b->output) return;
    const int64_t most = x->tokens[t] < b->shape[2] ? x->tokens[t] : b->shape[2];
    const double f = (double)features_of(c), dv = (double)p->shape.dim_v;
    double terms = 16 + f + (double)p->shape.len_kv, largest = 1; /* sums of numbers of about 1 may cancel to 0 */
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
    for (int64_t i = 0; i < b->shape[1] * most * b->shape[3]; i++) largest = fmax(largest, fabs(x->numbers[t][i]));
    for (int64_t h = 0; h < b->shape[1]; h++)
        for (int64_t i = 0; i < b->shape[2]; i++)
            for (int64_t k = 0; k < b->shape[3]; k++) {
                const double exact = i < most ? x->numbers[t][(h * most + i) * b->shape[3] + k] : 0;
                const double got = block_get(b, x->e, h, i, k), bound = unit * terms * largest + least + rounding * fabs(exact);
                if (b->dtype == ATTN_F16 && fabs(exact) + bound >= 65504) continue;
                if (!(fabs(got - exact) <= (i < most ? bound : 0)))
                    finding("ref: %s[%lld,%lld,%lld,%lld] is %.9g, should be %.9g, off by %.3g, bound %.3g", b->name,
                            (long long)x->e, (long long)h, (long long)i, (long long)k, got, exact, fabs(got - exact), bound);
            }
}

static double *spare(double **slot, int64_t count)
{
    if (!*slot) *slot = calloc((size_t)count + 1, sizeof **slot);
    if (!*slot) abort();
    return *slot;
}

static void compare_entry(const linear_case *c, int64_t e)
{
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE;
    const int64_t n = linear_length(c, e), rows = p->causal ? n : s->len_q, f = features_of(c), state = s->heads_kv * f * s->dim_v;
    entry x = {.c = c, .e = e};
    for (int t = 0; t < L_TENSORS; t++) {
        const attn_axis axis = c->about[t].axes[2];
        x.tokens[t] = axis == ATTN_AXIS_KEY ? n : axis == ATTN_AXIS_QUERY ? rows : INT64_MAX;
        open_tensor(&x, t);
    }
    const double root = s->dim_qk > 0 ? sqrt((double)s->dim_qk) : 1;
    const ref_linear r = {.B = 1,
                          .Hq = s->heads_q,
                          .Hkv = s->heads_kv,
                          .Sq = rows,
                          .Skv = n,
                          .D = s->dim_qk,
                          .Dv = s->dim_v,
                          .M = p->random_features,
                          .Q = x.numbers[L_Q],
                          .K = x.numbers[L_K],
                          .V = x.numbers[L_V],
                          .map = (ref_map)p->features,
                          .omega = x.numbers[L_OMEGA],
                          .feature_scale = 1 / sqrt(root),
                          .scale = p->scale_kind == ATTN_SCALE_VALUE ? p->scale
                                   : sum                             ? 1
                                                                     : 1 / root,
                          .epsilon = p->epsilon > 0 ? p->epsilon : 1e-6,
                          .denominator = (ref_denominator)p->denominator,
                          .causal = p->causal,
                          .log_decay = x.numbers[L_DECAY],
                          .decay_channels = p->decay_kind == ATTN_DECAY_CHANNEL,
                          .beta = x.numbers[L_BETA],
                          .erase = x.numbers[L_ERASE],
                          .write = x.numbers[L_WRITE],
                          .S0 = x.numbers[L_S0],
                          .z0 = x.numbers[L_Z0]};
    if (p->op == ATTN_FORWARD) {
        if (!ref_linear_forward(&r, spare(&x.numbers[L_O], s->heads_q * rows * s->dim_v), spare(&x.numbers[L_N], s->heads_q * rows),
                                spare(&x.numbers[L_S1], state), spare(&x.numbers[L_Z1], s->heads_kv * f)))
            abort();
    } else {
        const ref_linear_gradients g = {.dO = x.numbers[L_DO],
                                        .dS1 = x.numbers[L_DS1],
                                        .dz1 = x.numbers[L_DZ1],
                                        .O = x.numbers[L_O],
                                        .dQ = x.numbers[L_DQ],
                                        .dK = x.numbers[L_DK],
                                        .dV = x.numbers[L_DV],
                                        .dlog_decay = x.numbers[L_DDECAY],
                                        .dbeta = x.numbers[L_DBETA],
                                        .derase = x.numbers[L_DERASE],
                                        .dwrite = x.numbers[L_DWRITE],
                                        .dS0 = x.numbers[L_DS0],
                                        .dz0 = x.numbers[L_DZ0]};
        if (!ref_linear_backward(&r, &g)) abort();
    }
    for (int t = 0; t < L_TENSORS; t++) check_output(&x, t);
    for (int t = 0; t < L_TENSORS; t++) free(x.numbers[t]);
}

void linear_reference(const linear_case *c)
{
    const attn_shape *s = &c->problem.shape;
    const double work = (double)(s->heads_q * (s->len_q + s->len_kv)) * (double)features_of(c) * (double)(s->dim_v + 1);
    if (work > 1e6 || s->heads_kv == 0) return;
    for (int64_t e = 0; e < s->batch; e++) compare_entry(c, e);
}
