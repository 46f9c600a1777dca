/* SPDX-License-Identifier: MIT
 *
 * backward.c - the gradient of attention, by definition.  With f the softcap and modifier (or nothing), x the scores before it and
 * Z the dropout:
 *
 *      O = (Z P) V     P = softmax(S)     x = scale/temperature * Q K^T
 *      S = f(x) + bias - slope |p_i - j| + table[bucket(p_i - j)]
 *
 *      g_ij    = Z_ij dO_i . v_j                    the gradient that reaches weight (i, j)
 *      delta_i = sum_j P_ij g_ij
 *      dS_ij   = P_ij (g_ij - delta_i + dlse_i)     of softmax; of the sigmoid P_ij (1 - P_ij) g_ij, of ReLU g_ij over the
 *                                                   keys that i sees where the score is above 0
 *      dx_ij   = dS_ij f'(x_ij)
 */
#include "row.h"

#include <math.h>

static void zero(double *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++) x[c] = 0;
}

/* dO . value of key j. */
static double dot_value(const ref_problem *p, const row *r, const double *dO, int64_t j)
{
    double sum = 0;
    for (int64_t c = 0; c < p->Dv; c++) sum += dO[c] * row_value(p, r, j, c);
    return sum;
}

/* Adds the contribution of weight w of key j to the gradient of its value. */
static void value_gradient(const ref_problem *p, const ref_gradients *G, const row *r, int64_t j, double w, const double *dO)
{
    double *dV = G->dV + ((r->b * p->Hkv + r->g) * p->Skv + j) * p->Dv;
    for (int64_t c = 0; c < p->Dv; c++) {
        dV[c] += w * dO[c];
        if (p->relative_values) G->drelative_values[relative_row(p, r, j) * p->Dv + c] += w * dO[c];
    }
}

/* Adds one query's contribution to every gradient.  dS points at its row and first holds the scores; w receives the weights. */
static void row_backward(const ref_problem *p, const ref_gradients *G, const row *r, double *dS, double *w)
{
    const double *dO = G->dO + r->index * p->Dv;
    const double *Z = p->Z ? p->Z + r->index * p->Skv : 0;
    double dlse = G->dlse ? G->dlse[r->index] : 0;
    double unscaled = p->temperature > 0 ? 1 / p->temperature : 1; /* d score / d scale is this times the raw score */

    double lse = row_weights(p, r, dS, w);
    if (!row_sees_any(p, r)) {
        zero(dS, p->Skv);
        if (row_is_uniform(p, r)) /* a mean of V: only V has a gradient */
            for (int64_t j = 0; j < p->Skv; j++) value_gradient(p, G, r, j, (Z ? Z[j] : 1) * w[j], dO);
        else if (lse > -INFINITY && p->sink) /* the sink alone */ G->dsink[r->h] += dlse;
        return;
    }
    double delta = 0;
    for (int64_t j = 0; j < p->Skv; j++)
        if (ref_visible(p, r->b, r->h, r->i, j) && !(Z && Z[j] == 0)) delta += w[j] * (Z ? Z[j] : 1) * dot_value(p, r, dO, j);

    for (int64_t j = 0; j < p->Skv; j++) {
        const double score = dS[j];
        dS[j] = 0;
        if (!ref_visible(p, r->b, r->h, r->i, j)) continue;
        double z = Z ? Z[j] : 1, raw = row_raw_score(p, r, j), slope, g = 0;
        if (z != 0) {
            g = z * dot_value(p, r, dO, j);
            value_gradient(p, G, r, j, z * w[j], dO);
        }
        dS[j] = w[j] * (g - delta + dlse);
        if (p->normaliser == REF_BY_SIGMOID) dS[j] = w[j] * (1 - w[j]) * g;
        if (p->normaliser == REF_BY_RELU) dS[j] = score > 0 ? g * exp(-lse) : 0;
        row_capped(p, r, j, raw, &slope);
        double dx = dS[j] * slope;
        row_raw_gradient(p, G, r, j, r->scale * dx);
        G->dscale[r->h] += dx * unscaled * raw;
        if (p->bias_table) G->dbias_table[bias_table_at(p, r->h, r->position - j)] += dS[j];
        if (p->slopes) G->dslopes[r->b * p->Hq + r->h] -= dS[j] * fabs((double)(r->position - j));
    }
    if (p->sink) G->dsink[r->h] += exp(p->sink[r->h] - lse) * (dlse - delta);
}

void ref_backward(const ref_problem *p, const ref_gradients *G)
{
    zero(G->dQ, p->B * p->Hq * p->Sq * p->D);
    zero(G->dK, p->B * p->Hkv * p->Skv * dim_k(p));
    zero(G->dV, p->B * p->Hkv * p->Skv * p->Dv);
    zero(G->dscale, p->Hq);
    if (G->dW) zero(G->dW, (p->W_of_each_head ? p->Hq : 1) * weights_of_head(p));
    const int64_t rows = (p->relative_of_each_head ? p->Hq : 1) * p->relative_rows;
    if (G->drelative_keys) zero(G->drelative_keys, rows * p->D);
    if (G->drelative_values) zero(G->drelative_values, rows * p->Dv);
    if (G->drelative_u) zero(G->drelative_u, p->Hq * p->D);
    if (G->drelative_v) zero(G->drelative_v, p->Hq * p->D);
    if (G->dbias_table) zero(G->dbias_table, (p->bias_table_of_each_head ? p->Hq : 1) * p->buckets);
    if (G->dslopes) zero(G->dslopes, p->B * p->Hq);
    if (G->dsink) zero(G->dsink, p->Hq);
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->Hq; h++)
            for (int64_t i = 0; i < p->Sq; i++) {
                row r = row_at(p, b, h, i);
                row_backward(p, G, &r, G->dS + r.index * p->Skv, G->P + r.index * p->Skv);
            }
}
