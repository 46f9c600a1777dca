/* SPDX-License-Identifier: MIT
 * bound.c - backward, forward mode and the second order over absolute values. */
#include "attn_bound.h"

#include <math.h>
#include <stdlib.h>

#include "row.h"

static double sum_abs(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += fabs(x[c] * y[c]);
    return sum;
}

double ref_score_size(const ref_problem *p, const double *q, const double *k)
{
    const double both = sum_abs(q, k, p->D), of_q = dot(q, q, p->D), of_k = dot(k, k, p->D);
    if (p->kind == REF_DISTANCE) return 2 * both + of_q + of_k;
    if (p->kind == REF_ADDITIVE) {
        double sum = 0;
        for (int64_t c = 0; c < p->D; c++) sum += fabs(p->W[c]);
        return sum;
    }
    if (p->kind == REF_COSINE) return of_q > 0 && of_k > 0 ? both / (sqrt(of_q) * sqrt(of_k)) : 0;
    return both;
}

int64_t ref_score_roundings(const ref_problem *p)
{
    return p->kind == REF_DOT ? p->D : p->kind == REF_ADDITIVE ? p->D + 16 : 2 * p->D + 8;
}

/* What dx, the size of a gradient of a score, adds to that of q; for a cosine y/|y| less the part along x/|x|, over |x|. */
static void add_gradient_size(const ref_problem *p, const double *x, const double *y, double dx, double floor, double *to)
{
    const double lx = sqrt(dot(x, x, p->D)), ly = sqrt(dot(y, y, p->D)), cosine = lx * ly > 0 ? sum_abs(x, y, p->D) / (lx * ly) : 0;
    for (int64_t c = 0; c < p->D; c++) {
        double size = fabs(y[c]);
        if (p->kind == REF_DISTANCE) size = 2 * (fabs(x[c]) + fabs(y[c]));
        if (p->kind == REF_ADDITIVE) size = fabs(p->W[c]);
        if (p->kind == REF_COSINE) size = lx > 0 && ly > 0 ? (fabs(y[c]) / ly + cosine * fabs(x[c]) / lx) / lx : 0;
        to[c] += dx * size + floor;
    }
}

static double largest(const double *x, int64_t n, double most)
{
    for (int64_t c = 0; x && c < n; c++)
        if (fabs(x[c]) > most && isfinite(x[c])) most = fabs(x[c]);
    return most;
}

/* One query on its way: what its bounds are made of. */
typedef struct line {
    row at;
    int64_t key_head;     /* times Skv gives its keys among all keys */
    double scale;         /* |scale| over the temperature */
    double error, normal; /* the relative error of a factor; the smallest weight that is sure to be kept */
    double lse;           /* and its weights, of which [Skv] */
    const double *weight;
    double mean;  /* of the sizes of the tangents */
    double lost;  /* of dO . O, as O was stored */
    double floor; /* what any term may lose */
} line;

static double size_of_score(const ref_problem *p, const line *r, int64_t j)
{
    double size = (double)(ref_score_roundings(p) + 2) * r->scale * ref_score_size(p, r->at.q, r->at.K + j * p->D);
    if (p->softcap > 0) size *= 1 + 2 / p->softcap;
    if (p->bias) size += fabs(p->bias[r->at.index * p->Skv + j]);
    if (p->slopes) size += fabs(p->slopes[r->at.b * p->Hq + r->at.h] * (double)(r->at.position - j));
    return size;
}

/* Of a tangent before softcap and bias. */
static double size_before(const ref_problem *p, const ref_second *s, const line *r, int64_t j)
{
    double size = 0;
    if (s->Qd) size += r->scale * sum_abs(s->Qd + r->at.index * p->D, r->at.K + j * p->D, p->D);
    if (s->Kd) size += r->scale * sum_abs(r->at.q, s->Kd + (r->key_head * p->Skv + j) * p->D, p->D);
    return size;
}

static double size_of_tangent(const ref_problem *p, const ref_second *s, const line *r, int64_t j)
{
    return size_before(p, s, r, j) + (s->biasd ? fabs(s->biasd[r->at.index * p->Skv + j]) : 0);
}

static int seen(const ref_problem *p, const line *r, int64_t j) { return ref_visible(p, r->at.b, r->at.h, r->at.i, j); }
static double kept(const ref_problem *p, const line *r, int64_t j) { return p->Z ? p->Z[r->at.index * p->Skv + j] : 1; }

/* What a term may be off whose weight is P_j and that has `factors` factors. */
static double moved(const line *r, int64_t j, int factors) { return factors * r->error * r->weight[j] + r->normal; }

/* Backward: every term of its formula, in sizes. */
static void bound_backward(ref_bounds *b, const ref_problem *p, const ref_second *s, const line *r)
{
    const int64_t i = r->at.index;
    const double *dO = s->dO + i * p->Dv;
    double delta = r->lost / (2 * r->error) + (s->dlse ? fabs(s->dlse[i]) : 0);
    for (int64_t j = 0; j < p->Skv; j++)
        if (seen(p, r, j) && kept(p, r, j) != 0) delta += r->weight[j] * kept(p, r, j) * sum_abs(dO, r->at.V + j * p->Dv, p->Dv);
    if (p->sink && r->lse > -INFINITY) b->sink[r->at.h] += (2 * r->error * exp(p->sink[r->at.h] - r->lse) + r->normal) * delta;
    for (int64_t j = 0; j < p->Skv; j++) {
        const int64_t key = r->key_head * p->Skv + j;
        const double z = kept(p, r, j), w = moved(r, j, 2);
        const int sees = seen(p, r, j);
        if (!sees && r->weight[j] == 0) continue;
        for (int64_t c = 0; c < p->Dv && z != 0; c++) b->V[key * p->Dv + c] += z * w * fabs(dO[c]) + r->floor;
        if (!sees) continue; /* an empty row weighs all keys alike */
        const double dS = w * ((z != 0 ? z * sum_abs(dO, r->at.V + j * p->Dv, p->Dv) : 0) + delta);
        b->S[i * p->Skv + j] = dS + r->floor;
        b->slopes[r->at.b * p->Hq + r->at.h] += dS * fabs((double)(r->at.position - j)) + r->floor;
        b->scale[r->at.h] +=
            dS * ref_score_size(p, r->at.q, r->at.K + j * p->D) / (p->temperature > 0 ? p->temperature : 1) + r->floor;
        add_gradient_size(p, r->at.q, r->at.K + j * p->D, r->scale * dS, r->floor, b->Q + i * p->D);
        add_gradient_size(p, r->at.K + j * p->D, r->at.q, r->scale * dS, r->floor, b->K + key * p->D);
        for (int64_t c = 0; c < p->D && p->kind == REF_ADDITIVE; c++) b->W[c] += r->scale * dS + r->floor;
    }
}

static void bound_tangents(ref_bounds *b, const ref_problem *p, const ref_second *s, const line *r, const ref_arithmetic *a)
{
    const int64_t i = r->at.index;
    for (int64_t j = 0; j < p->Skv; j++) {
        const int sees = seen(p, r, j);
        const double z = kept(p, r, j), w = moved(r, j, 2), size = sees ? size_of_tangent(p, s, r, j) : 0;
        if (!sees && r->weight[j] == 0) continue;
        b->lse[i] += w * size + r->floor;
        for (int64_t c = 0; c < p->Dv && z != 0; c++) {
            const int64_t at = (r->key_head * p->Skv + j) * p->Dv + c;
            b->O[i * p->Dv + c] +=
                z * w * ((sees ? (size + r->mean) * fabs(p->V[at]) : 0) + (s->Vd ? fabs(s->Vd[at]) : 0)) + r->floor;
        }
    }
    for (int64_t c = 0; c < p->Dv && a->O_lost; c++) b->O[i * p->Dv + c] += r->mean * a->O_lost[i * p->Dv + c];
}

/* The second order: every term of its formula, in sizes. */
static void bound_second(ref_bounds *b, const ref_problem *p, const ref_second *s, const line *r)
{
    const int64_t i = r->at.index;
    const double *dO = s->dO + i * p->Dv;
    const double curve = p->softcap > 0 ? 2 / p->softcap : 0;
    double delta = r->lost / (3 * r->error) + (s->dlse ? fabs(s->dlse[i]) : 0);
    double kappa = sum_abs(dO, b->O + i * p->Dv, p->Dv) / (2 * r->error);
    for (int64_t j = 0; j < p->Skv; j++)
        if (seen(p, r, j) && kept(p, r, j) != 0) delta += r->weight[j] * kept(p, r, j) * sum_abs(dO, r->at.V + j * p->Dv, p->Dv);
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!seen(p, r, j)) continue;
        const int64_t key = r->key_head * p->Skv + j;
        const double z = kept(p, r, j), w = moved(r, j, 3), away = size_of_tangent(p, s, r, j) + r->mean;
        const double dS = w * ((z != 0 ? z * sum_abs(dO, r->at.V + j * p->Dv, p->Dv) : 0) + delta);
        const double R = away * dS + w * ((z != 0 && s->Vd ? z * sum_abs(dO, s->Vd + key * p->Dv, p->Dv) : 0) + kappa);
        const double X = R + dS * curve * size_before(p, s, r, j);
        b->S[i * p->Skv + j] = R + r->floor;
        for (int64_t c = 0; c < p->D; c++) {
            b->Q[i * p->D + c] +=
                r->scale * (X * fabs(r->at.K[j * p->D + c]) + (s->Kd ? dS * fabs(s->Kd[key * p->D + c]) : 0)) + r->floor;
            b->K[key * p->D + c] += r->scale * (X * fabs(r->at.q[c]) + (s->Qd ? dS * fabs(s->Qd[i * p->D + c]) : 0)) + r->floor;
        }
        for (int64_t c = 0; c < p->Dv && z != 0; c++) b->V[key * p->Dv + c] += z * w * away * fabs(dO[c]) + r->floor;
    }
}

typedef enum operation { BACKWARD, FORWARD_MODE, SECOND } operation;

static void bound_row(ref_bounds *b, const ref_problem *p, const ref_second *s, line *r, const ref_arithmetic *a, operation op)
{
    const int64_t i = r->at.index;
    double most = 0;
    int any = 0;
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!seen(p, r, j)) continue;
        any = 1;
        most = fmax(most, size_of_score(p, r, j));
        if (op != BACKWARD) r->mean += r->weight[j] * size_of_tangent(p, s, r, j);
    }
    if (!any && !row_is_uniform(p, &r->at) && !(p->sink && op == BACKWARD)) return; /* nothing is computed */
    /* Beside those of a score: of a gradient that goes back through a length. */
    const double chains = (double)(p->Dv + p->Skv + p->Hq / p->Hkv * p->Sq + ref_score_roundings(p) - p->D);
    r->error = (a->unit + 0x1p-53) * (8 + chains + most + (isfinite(r->lse) ? fabs(r->lse) : 0)); /* ref/ rounds too */
    r->normal = a->normal;
    for (int64_t c = 0; c < p->Dv && a->O_lost && s->dO; c++) r->lost += fabs(s->dO[i * p->Dv + c]) * a->O_lost[i * p->Dv + c];
    if (op == BACKWARD) bound_backward(b, p, s, r);
    else bound_tangents(b, p, s, r, a);
    if (op == SECOND && any) bound_second(b, p, s, r);
}

/* What a term may lose to products below the smallest number: far less than anything else, unless all is tiny. */
static double floor_of(const ref_problem *p, const ref_second *s, const ref_arithmetic *a)
{
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv;
    double most = 1;
    most = largest(p->Q, rows * p->D, largest(p->K, keys * p->D, largest(p->V, keys * p->Dv, most)));
    most = largest(s->Qd, rows * p->D, largest(s->Kd, keys * p->D, largest(s->Vd, keys * p->Dv, most)));
    most = largest(s->dO, rows * p->Dv, most);
    return a->denormal * (double)(8 + p->D + p->Dv) * most * most * most;
}

static double *array(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

static int bound(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a, operation op)
{
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv;
    double *S = array(p->Skv), *P = array(p->Skv);
    *b = (ref_bounds){array(rows * p->Dv),  array(rows),  array(rows * p->D),  array(keys * p->D), array(keys * p->Dv),
                      array(rows * p->Skv), array(p->Hq), array(p->B * p->Hq), array(p->Hq),       array(p->D)};
    const double floor = floor_of(p, s, a);
    int ok = S && P && b->O && b->lse && b->Q && b->K && b->V && b->S && b->scale && b->slopes && b->sink && b->W;
    for (int64_t n = 0; ok && n < rows; n++) {
        line r = {.at = row_at(p, n / p->Sq / p->Hq, n / p->Sq % p->Hq, n % p->Sq)};
        r.key_head = r.at.b * p->Hkv + r.at.g;
        r.scale = fabs(r.at.scale);
        r.lse = row_weights(p, &r.at, S, P);
        r.weight = P;
        r.floor = floor;
        bound_row(b, p, s, &r, a, op);
    }
    free(S), free(P);
    if (!ok) ref_bounds_free(b);
    return ok;
}

int ref_bound_backward(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a)
{
    return bound(b, p, s, a, BACKWARD);
}

int ref_bound_jvp(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a)
{
    return bound(b, p, s, a, FORWARD_MODE);
}

int ref_bound_second(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a)
{
    return bound(b, p, s, a, SECOND);
}

void ref_bounds_free(ref_bounds *b)
{
    double *all[] = {b->O, b->lse, b->Q, b->K, b->V, b->S, b->scale, b->slopes, b->sink, b->W};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    *b = (ref_bounds){0};
}
