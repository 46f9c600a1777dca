/* SPDX-License-Identifier: MIT
 * bound.c - bounds of forward mode and double backward, over absolute values; those of forward and backward, from ref/. */
#include "test.h"

#include "bound.h"
#include "row.h"

#include <float.h>
#include <math.h>

static double *array(int64_t n)
{
    double *memory = calloc((size_t)n + 1, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static double sum_abs(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += fabs(x[c] * y[c]);
    return sum;
}

/* One row: its indices, and the error bound of a factor of its terms. */
typedef struct line {
    int64_t b, h, i, at, key_head;
    double scale, weight_error;
} line;

static double size_of_score(const ref_problem *p, const line *r, int64_t j)
{
    double size = fabs(r->scale) * sum_abs(p->Q + r->at * p->D, p->K + (r->key_head * p->Skv + j) * p->D, p->D);
    if (p->softcap > 0) size *= 1 + 2 / p->softcap;
    if (p->modify) size = (1 + 2 / MODIFIER_CURVATURE) * size + MODIFIER_SHIFT;
    if (p->bias) size += fabs(p->bias[r->at * p->Skv + j]);
    if (p->slopes) size += fabs(p->slopes[r->b * p->Hq + r->h] * (double)(r->i + (p->offset ? p->offset[r->b] : 0) - j));
    if (p->bias_table) size += fabs(p->bias_table[bias_table_at(p, r->h, r->i + (p->offset ? p->offset[r->b] : 0) - j)]);
    return size;
}

/* Magnitude of a tangent before softcap and bias. */
static double size_before(const ref_problem *p, const ref_gradgrad *s, const line *r, int64_t j)
{
    int64_t key = r->key_head * p->Skv + j;
    double size = 0;
    if (s->Qd) size += fabs(r->scale) * sum_abs(s->Qd + r->at * p->D, p->K + key * p->D, p->D);
    if (s->Kd) size += fabs(r->scale) * sum_abs(p->Q + r->at * p->D, s->Kd + key * p->D, p->D);
    return size;
}

static double size_of_tangent(const ref_problem *p, const ref_gradgrad *s, const line *r, int64_t j)
{
    return size_before(p, s, r, j) + (s->biasd ? fabs(s->biasd[r->at * p->Skv + j]) : 0);
}

static double kept(const ref_problem *p, const line *r, int64_t j) { return p->Z ? p->Z[r->at * p->Skv + j] : 1; }

/* Forward mode.  mean: the mean magnitude of the tangents. */
static void bound_tangents(bounds *out, const ref_problem *p, const ref_gradgrad *s, const line *r, const double *weight,
                           double mean)
{
    /* A sum over keys, with one rounding per step: if all tangents are equal, all may go in one direction. */
    out->tan_lse[r->at] = (2 * r->weight_error + (double)p->Skv) * mean;
    for (int64_t j = 0; j < p->Skv; j++) {
        double w = 2 * r->weight_error * kept(p, r, j) * weight[j], size = 0;
        if (w == 0) continue;
        if (ref_visible(p, r->b, r->h, r->i, j)) size = size_of_tangent(p, s, r, j) + mean;
        for (int64_t c = 0; c < p->Dv; c++) {
            int64_t at = (r->key_head * p->Skv + j) * p->Dv + c;
            out->tan_o[r->at * p->Dv + c] += w * ((size > 0 ? size * fabs(p->V[at]) : 0) + (s->Vd ? fabs(s->Vd[at]) : 0));
        }
    }
}

/* Double backward: every term of its formula, as a magnitude. */
static void bound_double_backward(bounds *out, const ref_problem *p, const ref_gradgrad *s, const line *r, const double *weight,
                                  double mean)
{
    const double *dO = s->dO + r->at * p->Dv, *V = p->V + r->key_head * p->Skv * p->Dv, *q = p->Q + r->at * p->D;
    const double curve = p->softcap > 0 ? 2 / p->softcap : 0, scale = fabs(r->scale);
    double delta = s->dlse ? fabs(s->dlse[r->at]) : 0,
           kappa = sum_abs(dO, out->tan_o + r->at * p->Dv, p->Dv) / (2 * r->weight_error);
    for (int64_t j = 0; j < p->Skv; j++)
        if (ref_visible(p, r->b, r->h, r->i, j) && kept(p, r, j) != 0)
            delta += weight[j] * kept(p, r, j) * sum_abs(dO, V + j * p->Dv, p->Dv);
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!ref_visible(p, r->b, r->h, r->i, j) || weight[j] == 0) continue;
        const int64_t key = r->key_head * p->Skv + j;
        double z = kept(p, r, j), w = 3 * r->weight_error * weight[j], away = size_of_tangent(p, s, r, j) + mean;
        double dS = w * (z != 0 ? z * sum_abs(dO, V + j * p->Dv, p->Dv) : 0) + w * delta;
        double R = away * dS + w * ((z != 0 && s->Vd ? z * sum_abs(dO, s->Vd + key * p->Dv, p->Dv) : 0) + kappa);
        double X = R + dS * curve * size_before(p, s, r, j);
        out->bias[r->at * p->Skv + j] = R;
        for (int64_t c = 0; c < p->D; c++) {
            int64_t at = r->at * p->D + c, of_key = key * p->D + c;
            out->q[at] += scale * (X * fabs(p->K[of_key]) + (s->Kd ? dS * fabs(s->Kd[of_key]) : 0));
            out->k[of_key] += scale * (X * fabs(q[c]) + (s->Qd ? dS * fabs(s->Qd[at]) : 0));
        }
        for (int64_t c = 0; c < p->Dv && z != 0; c++) out->v[key * p->Dv + c] += z * w * away * fabs(dO[c]);
    }
}

static void bound_row(bounds *out, const ref_problem *p, const ref_gradgrad *s, line *r, const double *weight, double lse)
{
    double mean = 0, most = 0;
    int any = 0;
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!ref_visible(p, r->b, r->h, r->i, j)) continue;
        any = 1;
        most = fmax(most, size_of_score(p, r, j));
        mean += weight[j] * size_of_tangent(p, s, r, j);
    }
    r->weight_error = 8 + most + (isfinite(lse) ? fabs(lse) : 0);
    bound_tangents(out, p, s, r, weight, mean);
    if (s->dO && any) bound_double_backward(out, p, s, r, weight, mean);
}

void bounds_make(bounds *out, const ref_problem *p, const ref_gradgrad *s)
{
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv;
    double *O = array(rows * p->Dv), *lse = array(rows), *S = array(rows * p->Skv), *P = array(rows * p->Skv);
    *out = (bounds){.tan_o = array(rows * p->Dv),
                    .tan_lse = array(rows),
                    .q = array(rows * p->D),
                    .k = array(keys * p->D),
                    .v = array(keys * p->Dv),
                    .bias = array(rows * p->Skv)};
    ref_forward(p, O, lse, S, P);
    for (int64_t at = 0; at < rows; at++) {
        line r = {at / p->Sq / p->Hq, at / p->Sq % p->Hq, at % p->Sq, at, 0, p->scale, 0};
        r.key_head = r.b * p->Hkv + r.h / (p->Hq / p->Hkv);
        if (p->scale_of_head) r.scale = p->scale_of_head[r.h];
        if (p->temperature > 0) r.scale /= p->temperature;
        bound_row(out, p, s, &r, P + at * p->Skv, lse[at]);
    }
    free(O), free(lse), free(S), free(P);
}

void bounds_free(bounds *out) { free(out->tan_o), free(out->tan_lse), free(out->q), free(out->k), free(out->v), free(out->bias); }

/* ---- bounds of ref/ ---- */

static ref_arithmetic arithmetic_of(attn_dtype compute)
{
    const int wide = compute == ATTN_F64;
    return (ref_arithmetic){.unit = wide ? DBL_EPSILON / 2 : (double)FLT_EPSILON / 2,
                            .normal = wide ? DBL_MIN : (double)FLT_MIN,
                            .denormal = wide ? DBL_TRUE_MIN : (double)FLT_TRUE_MIN,
                            .modifier_curvature = 2 / MODIFIER_CURVATURE,
                            .modifier_shift = MODIFIER_SHIFT};
}

static void in_units(ref_bounds *b, const ref_problem *p, double u)
{
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv, heads_w = p->W_of_each_head ? p->Hq : 1,
                  tables = (p->relative_of_each_head ? p->Hq : 1) * p->relative_rows;
    const struct {
        double *numbers;
        int64_t count;
    } all[] = {{b->O, rows * p->Dv},
               {b->lse, rows},
               {b->Q, rows * p->D},
               {b->K, keys * dim_k(p)},
               {b->V, keys * p->Dv},
               {b->S, rows * p->Skv},
               {b->scale, p->Hq},
               {b->slopes, p->B * p->Hq},
               {b->sink, p->Hq},
               {b->W, heads_w * weights_of_head(p)},
               {b->relative_keys, tables * p->D},
               {b->relative_values, tables * p->Dv},
               {b->relative_u, p->Hq * p->D},
               {b->relative_v, p->Hq * p->D},
               {b->bias_table, p->Hq * p->buckets}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        for (int64_t i = 0; i < all[n].count; i++) all[n].numbers[i] /= u;
}

ref_bounds bounds_of_forward(const ref_problem *p, attn_dtype compute, double u)
{
    const ref_arithmetic a = arithmetic_of(compute);
    ref_bounds b;
    assert_true(ref_bound_forward(&b, p, &a));
    in_units(&b, p, u);
    return b;
}

/* The rounding error of O in storage. */
static double *lost(const ref_problem *p, double storage)
{
    const int64_t rows = p->B * p->Hq * p->Sq;
    double *O = array(rows * p->Dv), *lse = array(rows), *S = array(rows * p->Skv), *P = array(rows * p->Skv);
    ref_forward(p, O, lse, S, P);
    for (int64_t i = 0; i < rows * p->Dv; i++) O[i] = storage * fabs(O[i]);
    free(lse), free(S), free(P);
    return O;
}

ref_bounds bounds_of_backward(const ref_problem *p, const ref_gradgrad *s, attn_dtype compute, double u, double storage)
{
    ref_arithmetic a = arithmetic_of(compute);
    double *O = lost(p, storage);
    ref_bounds b;
    a.O_lost = O;
    assert_true(ref_bound_backward(&b, p, s, &a));
    in_units(&b, p, u);
    free(O);
    return b;
}

bounds bounds_of_stored(const ref_problem *p, const ref_gradgrad *s, attn_dtype compute, double u, double storage)
{
    ref_arithmetic a = arithmetic_of(compute);
    double *O = lost(p, storage);
    ref_bounds b = {0};
    a.O_lost = O;
    assert_true(s->dO ? ref_bound_double_backward(&b, p, s, &a) : ref_bound_jvp(&b, p, s, &a));
    in_units(&b, p, u);
    free(O);
    const bounds out = {b.O, b.lse, b.Q, b.K, b.V, b.S};
    b.O = b.lse = b.Q = b.K = b.V = b.S = NULL;
    ref_bounds_free(&b);
    return out;
}

double bound_fraction(const double *got, const double *exact, const double *bound, int64_t n, double u)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++) {
        double error = fabs(got[i] - exact[i]);
        if (error == 0) continue;
        if (!(error < INFINITY) || bound[i] == 0) return INFINITY;
        worst = fmax(worst, error / (u * bound[i]));
    }
    return worst;
}
