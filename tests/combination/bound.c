/* SPDX-License-Identifier: MIT
 * bound.c - forward, backward, forward mode and the second order over absolute values. */
#include "test.h"

#include "bound.h"
#include "row.h"

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

/* One row: its place, and what its scores and their tangents are made of. */
typedef struct line {
    int64_t b, h, i, at, key_head;
    double scale, weight_error;
    double O_error; /* of its row of O, relative: by being stored */
    const double *O;
} line;

/* The cosine of x and y as x moves, in sizes. */
static void cosine_sizes(const double *x, const double *y, int64_t D, double dx, double *to)
{
    double lx = sqrt(dot(x, x, D)), ly = sqrt(dot(y, y, D));
    if (lx == 0 || ly == 0) return;
    double cosine = sum_abs(x, y, D) / (lx * ly);
    for (int64_t a = 0; a < D; a++) to[a] += dx * (fabs(y[a]) / ly + cosine * fabs(x[a]) / lx) / lx;
}

/* Additive scores: a term takes 16 roundings and that of q + b, and is at most its weight. */
static double additive_size(const ref_problem *p, const row *at)
{
    const double *W = p->W + (p->W_of_each_head ? at->h * weights_of_head(p) : 0);
    double size = 0;
    for (int64_t a = 0; a < p->D; a++) size += fabs(W[a]) * (3 + fabs(at->q[a]) + (p->R == 2 ? fabs(W[p->D + a]) : 0));
    return size;
}

/* The derivative of tanh, 4 r (1 - r), has an error that is small beside 1. */
static void additive_sizes(const ref_problem *p, bounds *out, const line *r, int64_t key, double dx)
{
    const int64_t D = p->D, from = p->W_of_each_head ? r->h * weights_of_head(p) : 0;
    for (int64_t a = 0; a < D; a++) {
        const double moved = dx * fabs(p->W[from + a]);
        out->q[r->at * D + a] += moved;
        out->k[key * D + a] += moved;
        out->w[from + a] += dx;
        if (p->R == 2) out->w[from + D + a] += moved;
    }
}

/* Raw scores in sizes: p has absolute values, but for keys of distances, which are negative so that differences become sums. */
static double size_of_raw(const ref_problem *p, const line *r, int64_t j)
{
    row at = row_at(p, r->b, r->h, r->i);
    return p->kind == REF_ADDITIVE ? additive_size(p, &at) : fabs(row_raw_score(p, &at, j));
}

static void sizes_of_gradient(const ref_problem *p, bounds *out, const line *r, int64_t j, double dx)
{
    row at = row_at(p, r->b, r->h, r->i);
    const int64_t key = r->key_head * p->Skv + j, D = p->D;
    const ref_gradients to = {.dQ = out->q,
                              .dK = out->k,
                              .dW = p->W ? out->w : NULL,
                              .drelative_keys = out->relative_keys,
                              .drelative_u = out->relative_u,
                              .drelative_v = out->relative_v};
    if (p->kind == REF_ADDITIVE) {
        additive_sizes(p, out, r, key, fabs(dx));
        return;
    }
    if (p->kind != REF_COSINE) {
        row_raw_gradient(p, &to, &at, j, dx);
        return;
    }
    cosine_sizes(at.q, p->K + key * D, D, dx, out->q + r->at * D);
    cosine_sizes(p->K + key * D, at.q, D, dx, out->k + key * D);
}

static double size_of_score(const ref_problem *p, const line *r, int64_t j)
{
    double size = fabs(r->scale) * size_of_raw(p, r, j);
    if (p->softcap > 0) size *= 1 + 2 / p->softcap;
    if (p->modify) size = (1 + 2 / MODIFIER_BEND) * size + MODIFIER_SHIFT;
    if (p->bias) size += fabs(p->bias[r->at * p->Skv + j]);
    if (p->slopes) size += fabs(p->slopes[r->b * p->Hq + r->h] * (double)(r->i + (p->offset ? p->offset[r->b] : 0) - j));
    if (p->bias_table) size += fabs(p->bias_table[bias_table_at(p, r->h, r->i + (p->offset ? p->offset[r->b] : 0) - j)]);
    return size;
}

/* Of a tangent before softcap and bias. */
static double size_before(const ref_problem *p, const ref_second *s, const line *r, int64_t j)
{
    int64_t key = r->key_head * p->Skv + j;
    double size = 0;
    if (s->Qd) size += fabs(r->scale) * sum_abs(s->Qd + r->at * p->D, p->K + key * p->D, p->D);
    if (s->Kd) size += fabs(r->scale) * sum_abs(p->Q + r->at * p->D, s->Kd + key * p->D, p->D);
    return size;
}

static double size_of_tangent(const ref_problem *p, const ref_second *s, const line *r, int64_t j)
{
    return size_before(p, s, r, j) + (s->biasd ? fabs(s->biasd[r->at * p->Skv + j]) : 0);
}

/* A weight below the smallest normal number of f32 may become 0: 2^-126, in units of u as small as that of f64. */
static const double flushed = 0x1p-73;

static double kept(const ref_problem *p, const line *r, int64_t j) { return p->Z ? p->Z[r->at * p->Skv + j] : 1; }

/* Forward mode.  mean: of the sizes of the tangents. */
static void bound_tangents(bounds *out, const ref_problem *p, const ref_second *s, const line *r, const double *weight, double mean)
{
    out->tan_lse[r->at] = 2 * r->weight_error * mean;
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

/* The second order: every term of its formula, in sizes. */
static void bound_second(bounds *out, const ref_problem *p, const ref_second *s, const line *r, const double *weight, double mean)
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

static int64_t row_of_table(const ref_problem *p, const line *r, int64_t j)
{
    row at = row_at(p, r->b, r->h, r->i);
    return relative_row(p, &at, j);
}

static double size_of_value(const ref_problem *p, const line *r, int64_t j, int64_t c)
{
    double size = fabs(p->V[(r->key_head * p->Skv + j) * p->Dv + c]);
    return size + (p->relative_values ? fabs(p->relative_values[row_of_table(p, r, j) * p->Dv + c]) : 0);
}

static double size_of_product(const ref_problem *p, const line *r, const double *dO, int64_t j)
{
    double sum = 0;
    for (int64_t c = 0; c < p->Dv; c++) sum += fabs(dO[c]) * size_of_value(p, r, j, c);
    return sum;
}

/* Backward: every term of its formula, in sizes. */
static void bound_backward(bounds *out, const ref_problem *p, const ref_problem *sizes, const ref_second *s, const line *r,
                           const double *weight, double lse)
{
    const double *dO = s->dO + r->at * p->Dv;
    const double scale = fabs(r->scale), position = (double)(r->i + (p->offset ? p->offset[r->b] : 0));
    double delta = s->dlse ? fabs(s->dlse[r->at]) : 0;
    for (int64_t j = 0; j < p->Skv; j++)
        if (weight[j] != 0 && kept(p, r, j) != 0) delta += weight[j] * kept(p, r, j) * size_of_product(p, r, dO, j);
    double read_back = 0;
    for (int64_t c = 0; c < p->Dv; c++)
        if (r->O[c] != 0) read_back += r->O_error * fabs(dO[c] * r->O[c]);
    if (p->sink && lse > -INFINITY) out->sink[r->h] += exp(p->sink[r->h] - lse) * (2 * r->weight_error * delta + read_back);
    for (int64_t j = 0; j < p->Skv; j++) {
        if (weight[j] == 0) continue;
        const int64_t key = r->key_head * p->Skv + j;
        double z = kept(p, r, j), w = 2 * r->weight_error * weight[j] + flushed;
        for (int64_t c = 0; c < p->Dv && z != 0; c++) {
            out->v[key * p->Dv + c] += z * w * fabs(dO[c]);
            if (p->relative_values) out->relative_values[row_of_table(p, r, j) * p->Dv + c] += z * w * fabs(dO[c]);
        }
        if (!ref_visible(p, r->b, r->h, r->i, j)) continue; /* an empty row weighs all keys alike */
        double dS = w * ((z != 0 ? z * size_of_product(p, r, dO, j) : 0) + delta) + weight[j] * read_back;
        out->bias[r->at * p->Skv + j] = dS;
        out->slopes[r->b * p->Hq + r->h] += dS * fabs(position - (double)j);
        if (p->bias_table) out->bias_table[bias_table_at(p, r->h, (int64_t)position - j)] += dS;
        sizes_of_gradient(sizes, out, r, j, scale * dS);
        out->scale[r->h] += dS * size_of_raw(sizes, r, j) / (p->temperature > 0 ? p->temperature : 1);
    }
}

/* Forward: O is a sum of products of weights and values. */
static void bound_forward(bounds *out, const ref_problem *p, const line *r, const double *weight)
{
    for (int64_t j = 0; j < p->Skv; j++) {
        double w = weight[j] != 0 ? (2 * r->weight_error * weight[j] + flushed) * kept(p, r, j) : 0;
        for (int64_t c = 0; c < p->Dv && w != 0; c++) out->o[r->at * p->Dv + c] += w * size_of_value(p, r, j, c);
    }
    out->lse[r->at] = 2 * r->weight_error;
}

enum kind { FORWARD, BACKWARD, SECOND };

/* sizes: the problem in absolute values. */
static void bound_row(bounds *out, const ref_problem *p, const ref_problem *sizes, const ref_second *s, line *r,
                      const double *weight, double lse, enum kind kind)
{
    const double size_of_lse = isfinite(lse) ? fabs(lse) : 0;
    double mean = 0, most = 0;
    int any = 0;
    for (int64_t j = 0; j < p->Skv; j++)
        if (ref_visible(p, r->b, r->h, r->i, j)) {
            any = 1;
            most = fmax(most, size_of_score(sizes, r, j));
            if (kind == SECOND) mean += weight[j] * size_of_tangent(p, s, r, j);
        }
    if (kind == SECOND) {
        r->weight_error = 8 + most + size_of_lse;
        bound_tangents(out, p, s, r, weight, mean);
        if (s->dO && any) bound_second(out, p, s, r, weight, mean);
        return;
    }
    /* Every chain of roundings counted: D for a score, Dv for the gradient of a weight, the queries and keys of the sums. */
    int64_t chain = p->Dv + p->Skv + p->Hq / p->Hkv * p->Sq, wide = p->D + 2;
    if (p->W) wide += dim_k(p) + 2 * weights_of_head(p) / (p->D + 1), chain += p->B * p->Hq * p->Sq + wide;
    if (p->relative_rows) chain += p->B * p->Hq * p->Sq + p->relative_rows;
    r->weight_error = 8 + (double)chain + (double)wide * most + size_of_lse;
    if (kind == FORWARD) bound_forward(out, p, r, weight);
    else bound_backward(out, p, sizes, s, r, weight, lse);
}

static double *sizes_of(const double *x, int64_t n)
{
    double *sizes = x ? array(n) : NULL;
    for (int64_t i = 0; x && i < n; i++) sizes[i] = fabs(x[i]);
    return sizes;
}

static void make(bounds *out, const ref_problem *p, const ref_second *s, enum kind kind, double storage)
{
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv;
    double *O = array(rows * p->Dv), *lse = array(rows), *S = array(rows * p->Skv), *P = array(rows * p->Skv);
    *out = (bounds){.o = array(rows * p->Dv), .lse = array(rows), .tan_o = array(rows * p->Dv), .tan_lse = array(rows)};
    const int64_t of_q = rows * p->D, of_k = keys * dim_k(p), of_w = (p->W_of_each_head ? p->Hq : 1) * weights_of_head(p);
    double *Q = array(of_q), *K = array(of_k), *W = array(of_w);
    const int64_t of_table = (p->relative_of_each_head ? p->Hq : 1) * p->relative_rows, of_heads = p->Hq * p->D;
    double *rows_k = sizes_of(p->relative_keys, of_table * p->D), *u = sizes_of(p->relative_u, of_heads),
           *v = sizes_of(p->relative_v, of_heads);
    ref_problem sizes = *p;
    for (int64_t i = 0; i < of_q; i++) Q[i] = fabs(p->Q[i]);
    for (int64_t i = 0; i < of_k; i++) K[i] = p->kind == REF_DISTANCE ? -fabs(p->K[i]) : fabs(p->K[i]);
    for (int64_t i = 0; i < of_w; i++) W[i] = fabs(p->W[i]);
    sizes.Q = Q, sizes.K = K, sizes.W = p->W ? W : NULL;
    sizes.relative_keys = rows_k, sizes.relative_u = u, sizes.relative_v = v;
    out->relative_keys = array(of_table * p->D), out->relative_values = array(of_table * p->Dv);
    out->relative_u = array(of_heads), out->relative_v = array(of_heads);
    out->w = array(of_w), out->q = array(of_q), out->k = array(of_k), out->v = array(keys * p->Dv),
    out->bias = array(rows * p->Skv);
    out->scale = array(p->Hq), out->slopes = array(p->B * p->Hq), out->sink = array(p->Hq);
    out->bias_table = array(p->Hq * p->buckets);
    ref_forward(p, O, lse, S, P);
    /* ReLU has the error of the score itself, whatever is left of it. */
    for (int64_t i = 0; p->normaliser == REF_BY_RELU && i < rows * p->Skv; i++)
        P[i] = S[i] > -INFINITY ? (1 + fabs(S[i])) * exp(-lse[i / p->Skv]) : 0;
    for (int64_t at = 0; at < rows; at++) {
        line r = {at / p->Sq / p->Hq, at / p->Sq % p->Hq, at % p->Sq, at, 0, p->scale, 0, storage, O + at * p->Dv};
        r.key_head = r.b * p->Hkv + r.h / (p->Hq / p->Hkv);
        if (p->scale_of_head) r.scale = p->scale_of_head[r.h];
        if (p->temperature > 0) r.scale /= p->temperature;
        bound_row(out, p, &sizes, s, &r, P + at * p->Skv, lse[at], kind);
    }
    for (int64_t i = 0; i < of_q; i++) out->q[i] = fabs(out->q[i]); /* those of distances came out negative */
    free(Q), free(K), free(W), free(rows_k), free(u), free(v);
    free(O), free(lse), free(S), free(P);
}

void bounds_make(bounds *out, const ref_problem *p, const ref_second *s) { make(out, p, s, SECOND, 0); }
void bounds_make_forward(bounds *out, const ref_problem *p) { make(out, p, NULL, FORWARD, 0); }
void bounds_make_backward(bounds *out, const ref_problem *p, const ref_second *s, double storage)
{
    make(out, p, s, BACKWARD, storage);
}

void bounds_free(bounds *out)
{
    double *all[] = {out->o,          out->lse,           out->tan_o,           out->tan_lse,    out->q,         out->k,
                     out->v,          out->bias,          out->scale,           out->slopes,     out->sink,      out->w,
                     out->bias_table, out->relative_keys, out->relative_values, out->relative_u, out->relative_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
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
