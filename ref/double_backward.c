/* SPDX-License-Identifier: MIT
 *
 * double_backward.c - the gradient of the gradient, by definition.  Backward computes dQ, dK, dV and dS from dO and dlse; these are
 * the derivatives of the scalar
 *
 *      phi = <dQ, Q'> + <dK, K'> + <dV, V'> + <dS, bias'>           primes: gradients with respect to dQ, dK, dV, dS
 *
 * phi is also <dO, O'> + <dlse, lse'> with the tangents of jvp.c, which gives, with E_i[y] = sum_j P_ij y_ij,
 *
 *      x'      = scale (Q' K^T + Q K'^T)        S' = f'(x) x' + bias'
 *      g_ij    = Z_ij dO_i . v_j                h_ij = Z_ij dO_i . v'_j
 *      delta   = E[g]     mu = E[S']     eta = E[h]     cov = E[S' g] - mu delta
 *
 *      dS      = P (g - delta + dlse)
 *      R       = P ((S' - mu) (g - delta + dlse) - cov + h - eta)            with respect to S, and to a bias
 *      X       = R f'(x) + dS f''(x) x'                                      with respect to x
 */
#include "row.h"

#include <math.h>
#include <stdlib.h>

static void zero(double *x, int64_t n)
{
    for (int64_t c = 0; c < n; c++) x[c] = 0;
}

/* One pair of a query and a key that it sees. */
typedef struct pair {
    double z, xd, Sd, g, h;
    double slope, curvature; /* the softcap's derivatives, first and second */
} pair;

static pair pair_at(const ref_problem *p, const ref_gradgrad *s, const row *r, int64_t j)
{
    const int64_t key = (r->b * p->Hkv + r->g) * p->Skv + j;
    const double *k = r->K + j * p->D, *dO = s->dO + r->index * p->Dv;
    pair a = {.z = p->Z ? p->Z[r->index * p->Skv + j] : 1};
    a.slope = row_slope(p, r, j);
    if (p->softcap > 0) a.curvature = -2 * tanh(r->scale * dot(r->q, k, p->D) / p->softcap) * a.slope / p->softcap;
    if (s->Qd) a.xd += r->scale * dot(s->Qd + r->index * p->D, k, p->D);
    if (s->Kd) a.xd += r->scale * dot(r->q, s->Kd + key * p->D, p->D);
    a.Sd = a.slope * a.xd + (s->biasd ? s->biasd[r->index * p->Skv + j] : 0);
    if (a.z == 0) return a;
    a.g = a.z * dot(dO, r->V + j * p->Dv, p->Dv);
    if (s->Vd) a.h = a.z * dot(dO, s->Vd + key * p->Dv, p->Dv);
    return a;
}

/* Adds the contribution of a pair of weight w, with derivatives R and dS, to all outputs. */
static void add_pair(const ref_problem *p, const ref_gradgrad *s, const row *r, int64_t j, const pair *a, double w, double mu,
                     double R, double dS)
{
    const int64_t key = (r->b * p->Hkv + r->g) * p->Skv + j;
    const double *dO = s->dO + r->index * p->Dv;
    double X = R * a->slope + dS * a->curvature * a->xd, Y = dS * a->slope;
    for (int64_t c = 0; c < p->D; c++) {
        s->Q2[r->index * p->D + c] += r->scale * (X * r->K[j * p->D + c] + (s->Kd ? Y * s->Kd[key * p->D + c] : 0));
        s->K2[key * p->D + c] += r->scale * (X * r->q[c] + (s->Qd ? Y * s->Qd[r->index * p->D + c] : 0));
    }
    for (int64_t c = 0; c < p->Dv && a->z != 0; c++) {
        s->V2[key * p->Dv + c] += a->z * w * (a->Sd - mu) * dO[c];
        s->dO2[r->index * p->Dv + c] += a->z * w * ((a->Sd - mu) * r->V[j * p->Dv + c] + (s->Vd ? s->Vd[key * p->Dv + c] : 0));
    }
}

/* A row with uniform weights depends on V alone, so the only derivative is by dO. */
static void row_uniform(const ref_problem *p, const ref_gradgrad *s, const row *r, const double *w)
{
    for (int64_t j = 0; j < p->Skv && s->Vd; j++) {
        double z = p->Z ? p->Z[r->index * p->Skv + j] : 1;
        const double *vd = s->Vd + ((r->b * p->Hkv + r->g) * p->Skv + j) * p->Dv;
        for (int64_t c = 0; c < p->Dv && z != 0; c++) s->dO2[r->index * p->Dv + c] += z * w[j] * vd[c];
    }
}

static void row_double_backward(const ref_problem *p, const ref_gradgrad *s, const row *r, double *scores, double *w)
{
    double delta = 0, mu = 0, eta = 0, product = 0, dlse = s->dlse ? s->dlse[r->index] : 0;
    row_weights(p, r, scores, w);
    if (row_is_uniform(p, r)) row_uniform(p, s, r, w);
    if (!row_sees_any(p, r)) return;
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!ref_visible(p, r->b, r->h, r->i, j)) continue;
        pair a = pair_at(p, s, r, j);
        delta += w[j] * a.g;
        mu += w[j] * a.Sd;
        eta += w[j] * a.h;
        product += w[j] * a.Sd * a.g;
    }
    double cov = product - mu * delta;
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!ref_visible(p, r->b, r->h, r->i, j)) continue;
        pair a = pair_at(p, s, r, j);
        double dS = w[j] * (a.g - delta + dlse);
        double R = w[j] * ((a.Sd - mu) * (a.g - delta + dlse) - cov + a.h - eta);
        s->S2[r->index * p->Skv + j] = R;
        add_pair(p, s, r, j, &a, w[j], mu, R, dS);
    }
    s->dlse2[r->index] = mu;
}

int ref_double_backward(const ref_problem *p, const ref_gradgrad *s)
{
    double *scores = malloc((size_t)(2 * p->Skv + 1) * sizeof *scores); /* scores and weights of one query */
    if (!scores) return 0;
    zero(s->Q2, p->B * p->Hq * p->Sq * p->D);
    zero(s->K2, p->B * p->Hkv * p->Skv * p->D);
    zero(s->V2, p->B * p->Hkv * p->Skv * p->Dv);
    zero(s->S2, p->B * p->Hq * p->Sq * p->Skv);
    zero(s->dO2, p->B * p->Hq * p->Sq * p->Dv);
    zero(s->dlse2, p->B * p->Hq * p->Sq);
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->Hq; h++)
            for (int64_t i = 0; i < p->Sq; i++) {
                row r = row_at(p, b, h, i);
                row_double_backward(p, s, &r, scores, scores + p->Skv);
            }
    free(scores);
    return 1;
}
