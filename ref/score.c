/* SPDX-License-Identifier: MIT
 *
 * score.c - the score of a query and a key, by kind, and its gradient.
 *
 *      general    x = q.(W k)              dq = W k dx        dk = W^T q dx       dW = q k^T dx
 *      metric     x = (W q).(W k)          dq = W^T W k dx    dk = W^T W q dx     dW = (W q k^T + W k q^T) dx
 *      cosine     x = q.k / (|q| |k|)      dq = (k/|k| - x q/|q|) / |q| dx        and the same for k
 *      distance   x = -|q - k|^2           dq = -2 (q - k) dx                     dk = -dq
 *      additive   x = w.t, t = tanh(q + k + b)     dq = dk = db = w (1 - t^2) dx      dw = t dx
 */
#include "row.h"

#include <math.h>
#include <stddef.h>

static int64_t rows_of_W(const ref_problem *p)
{
    if (p->kind == REF_ADDITIVE) return p->R == 2 ? 2 : 1;
    return p->kind == REF_METRIC && p->R ? p->R : p->D;
}

int64_t weights_of_head(const ref_problem *p) { return p->W ? rows_of_W(p) * dim_k(p) : 0; }

/* Offset of the head's W, in elements. */
static int64_t weights_at(const ref_problem *p, const row *r) { return p->W_of_each_head ? r->h * weights_of_head(p) : 0; }

/* The head's W, for kinds that have one. */
static const double *weights_of(const ref_problem *p, const row *r) { return p->W + weights_at(p, r); }

/* u.k + (q + v).row, with the terms that the problem has. */
static double relative_score(const ref_problem *p, const row *r, const double *k, int64_t j)
{
    const int64_t D = p->D;
    double x = p->relative_u ? dot(p->relative_u + r->h * D, k, D) : 0;
    if (!p->relative_keys) return x;
    const double *key = p->relative_keys + relative_row(p, r, j) * D;
    return x + dot(r->q, key, D) + (p->relative_v ? dot(p->relative_v + r->h * D, key, D) : 0);
}

static void relative_gradient(const ref_problem *p, const ref_gradients *G, const row *r, int64_t j, double dx)
{
    const int64_t D = p->D, key = (r->b * p->Hkv + r->g) * p->Skv + j;
    if (!p->relative_keys) return;
    const double *k = p->K + key * D, *u = p->relative_u ? p->relative_u + r->h * D : 0,
                 *v = p->relative_v ? p->relative_v + r->h * D : 0;
    const int64_t at = relative_row(p, r, j) * D;
    for (int64_t a = 0; a < D; a++) {
        G->dQ[r->index * D + a] += dx * p->relative_keys[at + a];
        G->drelative_keys[at + a] += dx * (r->q[a] + (v ? v[a] : 0));
        if (u) G->dK[key * D + a] += dx * u[a];
        if (u) G->drelative_u[r->h * D + a] += dx * k[a];
        if (v) G->drelative_v[r->h * D + a] += dx * p->relative_keys[at + a];
    }
}

double row_raw_score(const ref_problem *p, const row *r, int64_t j)
{
    const int64_t D = p->D, Dk = dim_k(p);
    const double *q = r->q, *k = r->K + j * Dk, *W = NULL;
    double x = 0;
    switch (p->kind) {
    case REF_DOT:
        return dot(q, k, D) + relative_score(p, r, k, j);
    case REF_GENERAL:
        W = weights_of(p, r);
        for (int64_t a = 0; a < D; a++) x += q[a] * dot(W + a * Dk, k, Dk);
        return x;
    case REF_METRIC:
        W = weights_of(p, r);
        for (int64_t a = 0; a < rows_of_W(p); a++) x += dot(W + a * D, q, D) * dot(W + a * D, k, D);
        return x;
    case REF_COSINE:
        x = sqrt(dot(q, q, D)) * sqrt(dot(k, k, D));
        return x != 0 ? dot(q, k, D) / x : 0;
    case REF_DISTANCE:
        for (int64_t a = 0; a < D; a++) x -= (q[a] - k[a]) * (q[a] - k[a]);
        return x;
    case REF_ADDITIVE:
        W = weights_of(p, r);
        for (int64_t a = 0; a < D; a++) x += W[a] * tanh(q[a] + k[a] + (rows_of_W(p) == 2 ? W[D + a] : 0));
        return x;
    }
    return x;
}

/* The gradient of the cosine of x and y by x: a vector of length 0 has neither. */
static void cosine_gradient(const double *x, const double *y, int64_t D, double dx, double *to)
{
    double lx = sqrt(dot(x, x, D)), ly = sqrt(dot(y, y, D));
    if (lx == 0 || ly == 0) return;
    double cosine = dot(x, y, D) / (lx * ly);
    for (int64_t a = 0; a < D; a++) to[a] += dx * (y[a] / ly - cosine * x[a] / lx) / lx;
}

void row_raw_gradient(const ref_problem *p, const ref_gradients *G, const row *r, int64_t j, double dx)
{
    const int64_t D = p->D, Dk = dim_k(p), at = weights_at(p, r);
    const double *q = r->q, *k = r->K + j * Dk, *W = NULL;
    double *dq = G->dQ + r->index * D, *dk = G->dK + ((r->b * p->Hkv + r->g) * p->Skv + j) * Dk, *dW = G->dW ? G->dW + at : 0;
    switch (p->kind) {
    case REF_DOT:
        for (int64_t a = 0; a < D; a++) {
            dq[a] += dx * k[a];
            dk[a] += dx * q[a];
        }
        relative_gradient(p, G, r, j, dx);
        break;
    case REF_GENERAL:
        W = weights_of(p, r);
        for (int64_t a = 0; a < D; a++)
            for (int64_t c = 0; c < Dk; c++) {
                dq[a] += dx * W[a * Dk + c] * k[c];
                dk[c] += dx * W[a * Dk + c] * q[a];
                if (dW) dW[a * Dk + c] += dx * q[a] * k[c];
            }
        break;
    case REF_METRIC:
        W = weights_of(p, r);
        for (int64_t a = 0; a < rows_of_W(p); a++) {
            double Wq = dot(W + a * D, q, D), Wk = dot(W + a * D, k, D);
            for (int64_t c = 0; c < D; c++) {
                dq[c] += dx * W[a * D + c] * Wk;
                dk[c] += dx * W[a * D + c] * Wq;
                if (dW) dW[a * D + c] += dx * (Wq * k[c] + Wk * q[c]);
            }
        }
        break;
    case REF_COSINE:
        cosine_gradient(q, k, D, dx, dq);
        cosine_gradient(k, q, D, dx, dk);
        break;
    case REF_DISTANCE:
        for (int64_t a = 0; a < D; a++) {
            dq[a] -= 2 * dx * (q[a] - k[a]);
            dk[a] += 2 * dx * (q[a] - k[a]);
        }
        break;
    case REF_ADDITIVE:
        W = weights_of(p, r);
        for (int64_t a = 0; a < D; a++) {
            const int bias = rows_of_W(p) == 2;
            double t = tanh(q[a] + k[a] + (bias ? W[D + a] : 0)), dz = dx * W[a] * (1 - t * t);
            dq[a] += dz;
            dk[a] += dz;
            if (dW) dW[a] += dx * t;
            if (dW && bias) dW[D + a] += dz;
        }
        break;
    }
}
