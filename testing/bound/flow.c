/* SPDX-License-Identifier: MIT
 * flow.c - gradients, tangents and double backward by the reference. */
#include "flow.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "attn_bound.h"
#include "bound.h"
#include "testing/problem/problem.h"

int flow_in(const attn_tensors *all, attn_op op, int t)
{
    return tensors_reads(all, op, t) && tensors_about(t)->role[ATTN_FORWARD] == ATTN_ROLE_NONE;
}

static double *doubles(const int64_t size[4]) { return calloc((size_t)tensor_count(size) + 1, sizeof(double)); }

static int read_inputs(flows *all, const expectation *e, const attn_problem *p, const attn_tensors *tensors)
{
    for (int t = 0; t < TENSORS; t++) {
        int64_t size[4];
        if (!flow_in(tensors, p->op, t)) continue;
        tensors_shape(p, tensors, t, size);
        if (!(all->in[t] = doubles(size))) return 0;
        tensors_read(p, tensors, t, size, !tensors_packs(t) ? NULL : tensors_of_keys(t) ? e->begin_kv : e->begin_q, all->in[t]);
    }
    return 1;
}

/* Sums `from` [full] over the axes that are 1 in `size`. */
static void reduce(const double *from, const int64_t full[4], double *to, const int64_t size[4])
{
    for (int64_t b = 0; b < full[0]; b++)
        for (int64_t h = 0; h < full[1]; h++)
            for (int64_t i = 0; i < full[2]; i++)
                for (int64_t j = 0; j < full[3]; j++) {
                    const int64_t at[4] = {b, h, i, j};
                    int64_t n = 0;
                    for (int axis = 0; axis < 4; axis++) n = n * size[axis] + (size[axis] == 1 ? 0 : at[axis]);
                    to[n] += *from++;
                }
}

/* Output t from the reference's arrays, reduced over the axes that the output reduces; exact and bound remain the caller's. */
static int take(flows *all, int t, const attn_problem *p, const attn_tensors *tensors, const double *exact, const double *bound)
{
    const int primal = tensors_about(t)->gradient_of;
    int64_t size[4], full[4];
    if (!tensors_writes(tensors, p->op, t)) return 1;
    tensors_shape(p, tensors, t, size);
    const int of_table = primal >= 0 && tensors_about(primal)->axes[0] == ATTN_AXIS_ONE;
    tensors_shape(p, tensors, primal >= 0 && tensors_about(primal)->axes[0] == ATTN_AXIS_BATCH ? primal : t, full);
    if (of_table && p->shape.heads_q == 0) full[1] = 0; /* the gradient, 0, still has size 1, but the reference has no table */
    all->exact[t] = doubles(size);
    all->bound[t] = doubles(size);
    if (!all->exact[t] || !all->bound[t]) return 0;
    reduce(exact, full, all->exact[t], size);
    reduce(bound, full, all->bound[t], size);
    /* A gradient computed in f64 may be stored in f32, like its bias. */
    if (tensors_dtype(tensors, t) == ATTN_F32 && tensors->q.dtype == ATTN_F64)
        for (int64_t n = 0; n < tensor_count(size); n++) all->bound[t][n] += 0x1p-24 * fabs(all->exact[t][n]) + 0x1p-150;
    return 1;
}

/* What O loses when stored; NULL: nothing, or out of memory, and then *ok becomes 0. */
static double *lost_of_output(const expectation *e, const attn_problem *p, const attn_tensors *tensors, int *ok)
{
    const attn_dtype dtype = tensors_dtype(tensors, TENSOR(o));
    int64_t size[4];
    tensors_shape(p, tensors, TENSOR(o), size);
    if (bound_storage(dtype, 1) == 0) return NULL;
    double *lost = doubles(size);
    *ok = lost != NULL;
    for (int64_t n = 0; *ok && n < tensor_count(size); n++) lost[n] = bound_storage(dtype, e->O[n]);
    return lost;
}

static int run_reference(flows *all, const expectation *e, const attn_problem *p, const attn_tensors *tensors,
                         const ref_arithmetic *arithmetic)
{
    const ref_problem *r = &e->ref;
    const int64_t rows = r->B * r->Hq * r->Sq, keys = r->B * r->Hkv * r->Skv, tables = r->Hq * r->relative_rows;
    const int64_t counts[] = {rows * r->D,     keys * problem_dim_k(p),
                              keys * r->Dv,    rows * r->Skv,
                              rows * r->Skv,   r->Hq,
                              r->B * r->Hq,    r->Hq,
                              rows * r->Dv,    rows,
                              e->numbers_of_w, r->Hq * r->buckets,
                              tables * r->D,   tables * r->Dv,
                              r->Hq * r->D,    r->Hq * r->D};
    enum { TQ, TK, TV, TS, TP, TSCALE, TSLOPES, TSINK, TO, TLSE, TW, TTABLE, TKEY_ROWS, TVALUE_ROWS, TU, TRV, PARTS };
    double *x[PARTS] = {0};
    ref_bounds b = {0};
    ref_gradgrad s = {.dO = all->in[TENSOR(grad_o)],
                      .dlse = all->in[TENSOR(grad_lse)],
                      .Qd = all->in[TENSOR(tan_q)],
                      .Kd = all->in[TENSOR(tan_k)],
                      .Vd = all->in[TENSOR(tan_v)],
                      .biasd = all->in[TENSOR(tan_bias)]};
    int ok = 1;
    for (int k = 0; k < PARTS; k++) ok &= (x[k] = calloc((size_t)counts[k] + 1, sizeof(double))) != NULL;
    if (ok && p->op == ATTN_BACKWARD) {
        ref_backward(r, &(ref_gradients){.dO = s.dO,
                                         .dlse = s.dlse,
                                         .dQ = x[TQ],
                                         .dK = x[TK],
                                         .dV = x[TV],
                                         .P = x[TP],
                                         .dS = x[TS],
                                         .dscale = x[TSCALE],
                                         .dslopes = x[TSLOPES],
                                         .dsink = x[TSINK],
                                         .dW = r->W ? x[TW] : NULL,
                                         .dbias_table = r->bias_table ? x[TTABLE] : NULL,
                                         .drelative_keys = r->relative_keys ? x[TKEY_ROWS] : NULL,
                                         .drelative_values = r->relative_values ? x[TVALUE_ROWS] : NULL,
                                         .drelative_u = r->relative_u ? x[TU] : NULL,
                                         .drelative_v = r->relative_v ? x[TRV] : NULL});
        ok = ref_bound_backward(&b, r, &s, arithmetic) && take(all, TENSOR(grad_q), p, tensors, x[TQ], b.Q) &&
             take(all, TENSOR(grad_k), p, tensors, x[TK], b.K) && take(all, TENSOR(grad_v), p, tensors, x[TV], b.V) &&
             take(all, TENSOR(grad_bias), p, tensors, x[TS], b.S) &&
             take(all, TENSOR(grad_scale), p, tensors, x[TSCALE], b.scale) &&
             take(all, TENSOR(grad_alibi_slopes), p, tensors, x[TSLOPES], b.slopes) &&
             take(all, TENSOR(grad_sink), p, tensors, x[TSINK], b.sink) &&
             take(all, TENSOR(grad_score_matrix), p, tensors, x[TW], b.W) &&
             take(all, TENSOR(grad_bias_table), p, tensors, x[TTABLE], b.bias_table) &&
             take(all, TENSOR(grad_relative_keys), p, tensors, x[TKEY_ROWS], b.relative_keys) &&
             take(all, TENSOR(grad_relative_values), p, tensors, x[TVALUE_ROWS], b.relative_values) &&
             take(all, TENSOR(grad_relative_u), p, tensors, x[TU], b.relative_u) &&
             take(all, TENSOR(grad_relative_v), p, tensors, x[TRV], b.relative_v);
    } else if (ok && p->op == ATTN_JVP) {
        ok = ref_jvp(r, &(ref_tangents){s.Qd, s.Kd, s.Vd, s.biasd, x[TO], x[TLSE]}) && ref_bound_jvp(&b, r, &s, arithmetic) &&
             take(all, TENSOR(tan_o), p, tensors, x[TO], b.O) && take(all, TENSOR(tan_lse), p, tensors, x[TLSE], b.lse);
    } else if (ok) {
        s.dO2 = x[TO], s.dlse2 = x[TLSE], s.Q2 = x[TQ], s.K2 = x[TK], s.V2 = x[TV], s.S2 = x[TS];
        ok = ref_double_backward(r, &s) && ref_bound_double_backward(&b, r, &s, arithmetic) &&
             take(all, TENSOR(second_grad_o), p, tensors, x[TO], b.O) &&
             take(all, TENSOR(second_grad_lse), p, tensors, x[TLSE], b.lse) &&
             take(all, TENSOR(second_q), p, tensors, x[TQ], b.Q) && take(all, TENSOR(second_k), p, tensors, x[TK], b.K) &&
             take(all, TENSOR(second_v), p, tensors, x[TV], b.V) && take(all, TENSOR(second_bias), p, tensors, x[TS], b.S);
    }
    for (int k = 0; k < PARTS; k++) free(x[k]);
    ref_bounds_free(&b);
    return ok;
}

int flows_create(flows *all, const expectation *e, const attn_problem *p, const attn_tensors *tensors)
{
    const int wide = e->compute == ATTN_F64;
    int ok = 1;
    *all = (flows){0};
    if (p->op == ATTN_FORWARD) return 1;
    double *lost = lost_of_output(e, p, tensors, &ok);
    const ref_arithmetic arithmetic = {.unit = wide ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2,
                                       .normal = wide ? DBL_MIN : (double)FLT_MIN,
                                       .denormal = wide ? DBL_TRUE_MIN : (double)FLT_TRUE_MIN,
                                       .flushed = e->bf16 ? (double)FLT_MIN : 0,
                                       .O_lost = lost};
    ok = ok && read_inputs(all, e, p, tensors) && run_reference(all, e, p, tensors, &arithmetic);
    free(lost);
    if (!ok) flows_destroy(all);
    return ok;
}

void flows_destroy(flows *all)
{
    for (int t = 0; t < TENSORS; t++) free(all->in[t]), free(all->exact[t]), free(all->bound[t]);
    *all = (flows){0};
}

void flows_compare(comparison *c, const flows *all, int t, const attn_problem *p, const attn_tensors *tensors, const double *got)
{
    int64_t size[4];
    tensors_shape(p, tensors, t, size);
    compare_numbers(c, tensors_about(t)->name, size, got, all->exact[t], all->bound[t], tensors_dtype(tensors, t));
}
