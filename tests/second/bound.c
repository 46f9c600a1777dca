/* SPDX-License-Identifier: MIT
 * bound.c - forward mode over absolute values. */
#include "test.h"

#include "bound.h"

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

/* One row: its place, its weights and what its scores and their tangents are made of. */
typedef struct line {
    int64_t b, h, i, at, key_head;
    double scale, weight_error;
} line;

static double size_of_score(const ref_problem *p, const line *r, int64_t j)
{
    double size = fabs(r->scale) * sum_abs(p->Q + r->at * p->D, p->K + (r->key_head * p->Skv + j) * p->D, p->D);
    if (p->bias) size += fabs(p->bias[r->at * p->Skv + j]);
    if (p->slopes) size += fabs(p->slopes[r->b * p->Hq + r->h] * (double)(r->i + (p->offset ? p->offset[r->b] : 0) - j));
    return size;
}

static double size_of_tangent(const ref_problem *p, const ref_tangents *t, const line *r, int64_t j)
{
    int64_t key = r->key_head * p->Skv + j;
    double size = 0;
    if (t->Qd) size += fabs(r->scale) * sum_abs(t->Qd + r->at * p->D, p->K + key * p->D, p->D);
    if (t->Kd) size += fabs(r->scale) * sum_abs(p->Q + r->at * p->D, t->Kd + key * p->D, p->D);
    if (t->biasd) size += fabs(t->biasd[r->at * p->Skv + j]);
    return size;
}

static void bound_row(bounds *out, const ref_problem *p, const ref_tangents *t, line *r, const double *weight, double lse)
{
    double mean = 0, most = 0;
    for (int64_t j = 0; j < p->Skv; j++)
        if (ref_visible(p, r->b, r->h, r->i, j)) {
            most = fmax(most, size_of_score(p, r, j));
            mean += weight[j] * size_of_tangent(p, t, r, j);
        }
    r->weight_error = 8 + most + (isfinite(lse) ? fabs(lse) : 0);
    out->tan_lse[r->at] = r->weight_error * mean;
    for (int64_t j = 0; j < p->Skv; j++) {
        double z = p->Z ? p->Z[r->at * p->Skv + j] : 1, size = 0;
        if (weight[j] == 0 || z == 0) continue;
        if (ref_visible(p, r->b, r->h, r->i, j)) size = size_of_tangent(p, t, r, j) + mean;
        for (int64_t c = 0; c < p->Dv; c++) {
            int64_t at = (r->key_head * p->Skv + j) * p->Dv + c;
            out->tan_o[r->at * p->Dv + c] +=
                r->weight_error * z * weight[j] * (size * fabs(p->V[at]) + (t->Vd ? fabs(t->Vd[at]) : 0));
        }
    }
}

void bounds_make(bounds *out, const ref_problem *p, const ref_tangents *t)
{
    const int64_t rows = p->B * p->Hq * p->Sq;
    double *O = array(rows * p->Dv), *lse = array(rows), *S = array(rows * p->Skv), *P = array(rows * p->Skv);
    out->tan_o = array(rows * p->Dv);
    out->tan_lse = array(rows);
    ref_forward(p, O, lse, S, P);
    for (int64_t at = 0; at < rows; at++) {
        line r = {at / p->Sq / p->Hq, at / p->Sq % p->Hq, at % p->Sq, at, 0, p->scale, 0};
        r.key_head = r.b * p->Hkv + r.h / (p->Hq / p->Hkv);
        if (p->scale_of_head) r.scale = p->scale_of_head[r.h];
        if (p->temperature > 0) r.scale /= p->temperature;
        bound_row(out, p, t, &r, P + at * p->Skv, lse[at]);
    }
    free(O), free(lse), free(S), free(P);
}

void bounds_free(bounds *out)
{
    free(out->tan_o);
    free(out->tan_lse);
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
