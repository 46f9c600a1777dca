/* SPDX-License-Identifier: MIT
 *
 * linear_reference.c - linear attention by definition, in double, and error bounds for other arithmetics. */
#include <math.h>

#include "linear_case.h"
#include "testing/text/failure.h"
#include "testing/verdict/linear.h"

double *linear_doubles(linear_case *c, int t)
{
    if (!view_present(&c->tensor[t])) return NULL;
    return (double *)view_convert(&c->pool, &c->tensor[t], ATTN_F64).data;
}

/*
 * df sums a_i.v_j + e_i, which may cancel: |e_i| = |a_i.o_i| is at most the largest |a_i.v_j|, since o_i is a mean of values.  So
 * the gradients of the sums without the denominator, over |a_i| and |v_j|, are half of the magnitude that enters.
 */
static void measure(linear_case *c, const ref_linear *r, const double *n)
{
    const int64_t rows = r->B * r->Hq * r->Sq;
    double *A = pool_take(&c->pool, rows * r->Dv, sizeof *A), *V = pool_take(&c->pool, r->B * r->Hkv * r->Skv * r->Dv, sizeof *V);
    const double *dO = linear_doubles(c, IN_DO);
    double *out[3];
    ref_linear sizes = *r;
    for (int64_t i = 0; i < rows * r->Dv; i++)
        A[i] = fabs(r->scale * dO[i]) / (r->denominator == REF_NONE ? 1 : fmax(n[i / r->Dv], r->epsilon));
    for (int64_t i = 0; i < r->B * r->Hkv * r->Skv * r->Dv; i++) V[i] = fabs(r->V[i]);
    for (int t = 0; t < 3; t++) out[t] = pool_take(&c->pool, view_count(&c->tensor[IN_Q + t]), sizeof(double));
    sizes.denominator = REF_NONE, sizes.scale = 1, sizes.V = V;
    const ref_linear_gradients g = {.dO = A, .dQ = out[0], .dK = out[1], .dV = out[2]};
    if (!ref_linear_backward(&sizes, &g)) end_out_of_memory("the reference");
    for (int t = 0; t < 3; t++) c->size[OUT_DQ + t] = 2 * largest_of(out[t], view_count(&c->tensor[IN_Q + t]));
}

/*
 * Products of features with both signs may cancel in the sum of a query's weights, the denominator: the error of o scales with that
 * sum over absolute values, times the values, divided by the denominator.
 */
static const double *measure_rows(linear_case *c, const ref_linear *r, const double *n, const double *o)
{
    const int64_t rows = r->B * r->Hq * r->Sq;
    double *size = pool_take(&c->pool, rows, sizeof *size);
    const double of_v = largest_of(r->V, r->B * r->Hkv * r->Skv * r->Dv);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t i = row % r->Sq, key_head = row / r->Sq / (r->Hq / r->Hkv), last = r->causal ? i + 1 : r->Skv;
        double sum = 0;
        for (int64_t j = 0; j < last && j < r->Skv; j++)
            for (int64_t a = 0; a < r->D; a++) sum += fabs(r->Q[row * r->D + a] * r->K[(key_head * r->Skv + j) * r->D + a]);
        size[row] = sum * (of_v + largest_of(o + row * r->Dv, r->Dv)) / fmax(fabs(n[row]), r->epsilon);
    }
    return size;
}

void linear_define(linear_case *c, double *exact[ALL])
{
    const attn_linear_problem *p = &c->problem;
    const attn_shape *s = &p->shape;
    const int64_t features = attn_features_count(p->features, s->dim_qk, p->random_features);
    const int sum = p->denominator != ATTN_DENOMINATOR_NONE;
    for (int t = OUT_O; t < ALL; t++) {
        const int64_t counts[] = {view_count(&c->tensor[IN_Q]) / s->dim_qk * s->dim_v, s->batch * s->heads_kv * features * s->dim_v,
                                  view_count(&c->tensor[IN_Q]), view_count(&c->tensor[IN_K]), view_count(&c->tensor[IN_V])};
        exact[t] = pool_take(&c->pool, counts[t - OUT_O], sizeof(double));
    }
    double *n = pool_take(&c->pool, view_count(&c->tensor[IN_Q]), sizeof *n);
    double *z = pool_take(&c->pool, s->batch * s->heads_kv * features, sizeof *z);
    ref_linear r = linear_definition(p);
    r.Q = linear_doubles(c, IN_Q), r.K = linear_doubles(c, IN_K), r.V = linear_doubles(c, IN_V);
    r.omega = linear_doubles(c, IN_OMEGA), r.S0 = linear_doubles(c, IN_STATE);
    if (c->decays) r.log_decay = linear_doubles(c, IN_DECAY);
    if (p->rule == ATTN_LINEAR_RULE_DELTA) r.beta = linear_doubles(c, IN_BETA);
    if (p->rule == ATTN_LINEAR_RULE_LOW_RANK) r.erase = linear_doubles(c, IN_ERASE), r.write = linear_doubles(c, IN_WRITE);
    if (!ref_linear_forward(&r, exact[OUT_O], n, exact[OUT_STATE], z)) end_out_of_memory("the reference");
    if (sum && p->features == ATTN_FEATURES_IDENTITY) c->size_of_o = measure_rows(c, &r, n, exact[OUT_O]);
    const ref_linear_gradients g = {.dO = linear_doubles(c, IN_DO), .dQ = exact[OUT_DQ], .dK = exact[OUT_DK], .dV = exact[OUT_DV]};
    if (!g.dO) return;
    if (!ref_linear_backward(&r, &g)) end_out_of_memory("the reference");
    measure(c, &r, n);
}
