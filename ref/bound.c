/* SPDX-License-Identifier: MIT
 * bound.c - error bounds: forward, backward, forward mode and double backward over absolute values. */
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

static double largest(const double *x, int64_t n, double most)
{
    for (int64_t c = 0; x && c < n; c++)
        if (fabs(x[c]) > most && isfinite(x[c])) most = fabs(x[c]);
    return most;
}

static double sum_of_sizes(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++) sum += fabs(x[c]);
    return sum;
}

/* One query and the terms of its bounds. */
typedef struct line {
    row at;
    const ref_problem *sizes; /* the problem in absolute values */
    row value;                /* the query's row in it */
    int64_t key_head;         /* times Skv gives its keys among all keys */
    double scale;             /* |scale| over the temperature */
    double error, normal;     /* the relative error of a factor; the smallest weight that is sure to survive */
    double grown[4];          /* e^(n error) - 1: the relative error of n factors */
    double lse;               /* of the query */
    const double *score, *weight;
    double *high; /* the largest that each weight may come out */
    double mean;  /* mean of the sizes of the tangents, by the largest weights */
    double lost;  /* error of dO . O from storing O */
    double floor; /* absolute error of any term */
} line;

/* Error of a product of two rows from flushing small numbers to 0, in units of roundoff: a factor of each term, and each sum. */
static double size_of_flushed(const ref_arithmetic *a, const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n && a->flushed > 0; c++) sum += fabs(x[c]) + fabs(y[c]) + 1;
    return a->flushed / a->unit * sum;
}

static double size_of_raw(const line *r, int64_t j) { return ref_score_size(r->sizes, r->at.b, r->at.h, r->at.i, j); }

/* Of what is added to the score. */
static double size_of_added(const ref_problem *p, const line *r, int64_t j)
{
    double size = 0;
    if (p->bias) size += fabs(p->bias[r->at.index * p->Skv + j]);
    if (p->slopes) size += fabs(p->slopes[r->at.b * p->Hq + r->at.h] * (double)(r->at.position - j));
    if (p->bias_table) size += fabs(p->bias_table[bias_table_at(p, r->at.h, r->at.position - j)]);
    return size;
}

static double size_of_score(const ref_problem *p, const line *r, const ref_arithmetic *a, int64_t j)
{
    double size = (double)(ref_score_roundings(p) + 2) * r->scale * size_of_raw(r, j);
    size += r->scale * size_of_flushed(a, r->at.q, r->at.K + j * dim_k(p), p->kind == REF_DOT ? p->D : 0);
    if (a->integer_keys) size += 2.01 * r->scale * largest(r->at.q, p->D, 0) * sum_of_sizes(r->at.K + j * dim_k(p), p->D);
    if (p->softcap > 0) size *= 1 + 2 / p->softcap;
    if (p->modify) size = (1 + a->modifier_curvature) * size + a->modifier_shift;
    return size + size_of_added(p, r, j);
}

/* The largest number on the way to a score, which must not overflow. */
static double size_on_the_way(const ref_problem *p, const line *r, int64_t j)
{
    double q = 0;
    for (int64_t c = 0; c < p->D; c++) q += fabs(r->at.q[c]);
    return r->scale * (size_of_raw(r, j) + q) + size_of_added(p, r, j);
}

/* |dO| . |v|, with its row of the table */
static double size_of_product(const line *r, const ref_arithmetic *a, const double *dO, int64_t j)
{
    double sum = size_of_flushed(a, dO, r->at.V + j * r->sizes->Dv, r->sizes->Dv);
    for (int64_t c = 0; c < r->sizes->Dv; c++) sum += fabs(dO[c]) * row_value(r->sizes, &r->value, j, c);
    return sum;
}

/* Size of the tangent of a score before softcap and bias. */
static double size_before(const ref_problem *p, const ref_gradgrad *s, const line *r, int64_t j)
{
    double size = 0;
    if (s->Qd) size += r->scale * sum_abs(s->Qd + r->at.index * p->D, r->at.K + j * p->D, p->D);
    if (s->Kd) size += r->scale * sum_abs(r->at.q, s->Kd + (r->key_head * p->Skv + j) * p->D, p->D);
    return size;
}

static double size_of_tangent(const ref_problem *p, const ref_gradgrad *s, const line *r, int64_t j)
{
    return size_before(p, s, r, j) + (s->biasd ? fabs(s->biasd[r->at.index * p->Skv + j]) : 0);
}

static int seen(const ref_problem *p, const line *r, int64_t j) { return ref_visible(p, r->at.b, r->at.h, r->at.i, j); }
static double kept(const ref_problem *p, const line *r, int64_t j) { return p->Z ? p->Z[r->at.index * p->Skv + j] : 1; }

/* Error of a term with weight P and `factors` factors.  However wrong the logarithm of the weight is, the computed term is no
 * more than `high` times the other factors' sizes, and the exact one no more than P times those. */
static double term_error(const line *r, double P, double high, int factors)
{
    const double most = 3 * high, error = P > 0 ? r->grown[factors] * P : most;
    return (error > most ? most : error) + r->normal;
}

static double moved(const ref_problem *p, const line *r, int64_t j, int factors)
{
    if (p->normaliser == REF_BY_RELU) return factors * r->error * r->weight[j] + r->normal;
    return term_error(r, r->weight[j], r->high[j], factors);
}

/* No computed weight is above 1, nor above the exact one times e^error. */
static double highest(const line *r, double log_weight) { return exp(fmin(log_weight + r->error, 0)); }

static double log_of_weight(const ref_problem *p, const line *r, int64_t j)
{
    const double S = r->score[j], x = S + p->shift;
    if (S == -INFINITY) return log(r->weight[j]); /* not visible; above 0 if the row is uniform */
    if (p->normaliser == REF_BY_SIGMOID) return x > 0 ? -log1p(exp(-x)) : x - log1p(exp(x));
    return S - r->lse;
}

static void find_highest(const ref_problem *p, const line *r)
{
    for (int64_t j = 0; j < p->Skv; j++) {
        const double P = r->weight[j];
        if (isnan(P) || p->normaliser == REF_BY_RELU || (P == 0 && r->score[j] == -INFINITY)) r->high[j] = P;
        else if (P > 0x1p-1000) r->high[j] = fmin(P + P * r->grown[1], 1);
        else r->high[j] = highest(r, log_of_weight(p, r, j)); /* P has lost digits */
    }
}

/* What channel c of the output loses where weights are cut to integers. */
static double lost_of_integers(const ref_problem *p, const line *r, const ref_arithmetic *a, int64_t c)
{
    const double *scale = a->value_scale + r->key_head * p->Skv;
    double most = 0, sum = 0;
    for (int64_t j = 0; j < p->Skv; j++) {
        if (r->high[j] == 0) continue;
        const double v = row_value(r->sizes, &r->value, j, c);
        most = fmax(most, r->high[j] * kept(p, r, j) * fabs(scale[j]));
        if (v != 0) sum += v / fabs(scale[j]);
    }
    return 1.01 * a->unit * most * sum;
}

/* Forward: a sum of products of weights and values. */
static void bound_forward(ref_bounds *b, const ref_problem *p, const line *r, const ref_arithmetic *a)
{
    for (int64_t c = 0; c < p->Dv && a->value_scale; c++) b->O[r->at.index * p->Dv + c] += lost_of_integers(p, r, a, c);
    for (int64_t j = 0; j < p->Skv; j++) {
        const double w = r->high[j] != 0 ? moved(p, r, j, 2) * kept(p, r, j) : 0;
        for (int64_t c = 0; c < p->Dv && w != 0; c++)
            b->O[r->at.index * p->Dv + c] += w * row_value(r->sizes, &r->value, j, c) + r->floor;
    }
    b->lse[r->at.index] = 2 * r->error;
}

/* Error of a score's gradient under ReLU if rounding may have decided whether the score is above 0. */
static double undecided(const ref_problem *p, const line *r, const ref_arithmetic *a, int64_t j)
{
    if (p->normaliser != REF_BY_RELU) return 0;
    return fabs(row_score(p, &r->at, j)) <= 2 * a->unit * size_of_score(p, r, a, j) ? exp(-r->lse) : 0;
}

/* Backward: every term of its formula, in sizes. */
static void bound_backward(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const line *r, const ref_arithmetic *a)
{
    const int64_t i = r->at.index;
    const double *dO = s->dO + i * p->Dv;
    const int elementwise = p->normaliser >= REF_BY_SIGMOID; /* no mean of gradients is subtracted */
    const ref_gradients to = {.dQ = b->Q,
                              .dK = b->K,
                              .dW = b->W,
                              .drelative_keys = b->relative_keys,
                              .drelative_u = b->relative_u,
                              .drelative_v = b->relative_v};
    const double lost = elementwise ? 0 : r->lost;
    double delta = !elementwise && s->dlse ? fabs(s->dlse[i]) : 0;
    for (int64_t j = 0; j < p->Skv && !elementwise; j++)
        if (seen(p, r, j) && kept(p, r, j) != 0) delta += r->high[j] * kept(p, r, j) * size_of_product(r, a, dO, j);
    if (p->sink && r->lse > -INFINITY) {
        const double log_weight = p->sink[r->at.h] - r->lse, high = highest(r, log_weight);
        b->sink[r->at.h] += term_error(r, exp(log_weight), high, 2) * delta + high * lost;
    }
    for (int64_t j = 0; j < p->Skv; j++) {
        const int64_t key = r->key_head * p->Skv + j, distance = r->at.position - j;
        const double z = kept(p, r, j), w = moved(p, r, j, 2);
        const int sees = seen(p, r, j);
        if (!sees && r->weight[j] == 0) continue;
        for (int64_t c = 0; c < p->Dv && z != 0; c++) {
            b->V[key * p->Dv + c] += z * w * fabs(dO[c]) + r->floor;
            if (p->relative_values) b->relative_values[relative_row(p, &r->at, j) * p->Dv + c] += z * w * fabs(dO[c]) + r->floor;
        }
        if (!sees) continue; /* a fully masked row with uniform weights */
        const double g = z != 0 ? z * size_of_product(r, a, dO, j) : 0,
                     dS = w * (g + delta) + r->high[j] * lost + undecided(p, r, a, j) * g;
        b->S[i * p->Skv + j] = dS + r->floor;
        b->slopes[r->at.b * p->Hq + r->at.h] += dS * fabs((double)distance) + r->floor;
        if (p->bias_table) b->bias_table[bias_table_at(p, r->at.h, distance)] += dS + r->floor;
        b->scale[r->at.h] += dS * size_of_raw(r, j) / (p->temperature > 0 ? p->temperature : 1) + r->floor;
        ref_gradient_size(r->sizes, &to, r->at.b, r->at.h, r->at.i, j, r->scale * dS);
    }
}

static void bound_tangents(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const line *r, const ref_arithmetic *a)
{
    const int64_t i = r->at.index;
    for (int64_t j = 0; j < p->Skv; j++) {
        const int sees = seen(p, r, j);
        const double z = kept(p, r, j), w = moved(p, r, j, 2), size = sees ? size_of_tangent(p, s, r, j) : 0;
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

/* Double backward: every term of its formula, in sizes. */
static void bound_double_backward(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const line *r)
{
    const int64_t i = r->at.index;
    const double *dO = s->dO + i * p->Dv;
    const double curve = p->softcap > 0 ? 2 / p->softcap : 0;
    double delta = s->dlse ? fabs(s->dlse[i]) : 0, kappa = 0;
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!seen(p, r, j) || kept(p, r, j) == 0) continue;
        const double w = r->high[j] * kept(p, r, j), g = sum_abs(dO, r->at.V + j * p->Dv, p->Dv);
        delta += w * g;
        kappa += w * (size_of_tangent(p, s, r, j) + r->mean) * g;
        if (s->Vd) kappa += w * sum_abs(dO, s->Vd + (r->key_head * p->Skv + j) * p->Dv, p->Dv);
    }
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!seen(p, r, j)) continue;
        const int64_t key = r->key_head * p->Skv + j;
        const double z = kept(p, r, j), w = moved(p, r, j, 3), away = size_of_tangent(p, s, r, j) + r->mean;
        const double lost = r->high[j] * r->lost; /* of delta; of kappa as much, times the mean of the tangents */
        const double dS = w * ((z != 0 ? z * sum_abs(dO, r->at.V + j * p->Dv, p->Dv) : 0) + delta) + lost;
        const double R =
            away * dS + w * ((z != 0 && s->Vd ? z * sum_abs(dO, s->Vd + key * p->Dv, p->Dv) : 0) + kappa) + lost * r->mean;
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

typedef enum operation { FORWARD, BACKWARD, FORWARD_MODE, DOUBLE_BACKWARD } operation;

static void bound_row(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, line *r, const ref_arithmetic *a, operation op)
{
    const int64_t i = r->at.index;
    double most = 0, largest = 0;
    int any = 0;
    for (int64_t j = 0; j < p->Skv; j++) {
        if (!seen(p, r, j)) continue;
        any = 1;
        if (r->score[j] == -INFINITY) continue; /* as if not seen */
        most = fmax(most, size_of_score(p, r, a, j));
        largest = fmax(largest, size_on_the_way(p, r, j));
    }
    if (!any && !row_is_uniform(p, &r->at) && !(p->sink && op == BACKWARD)) return; /* nothing is computed */
    /* Chains of roundings beside those of a score: gradients through a vector's length; weights and tables, which sum over all
     * queries. */
    double chains = (double)(p->Dv + p->Skv + p->Hq / p->Hkv * p->Sq + ref_score_roundings(p) - p->D);
    if (p->W || p->relative_rows || p->bias_table) chains += (double)(p->B * p->Hq * p->Sq + p->relative_rows);
    r->error = (a->unit + 0x1p-53) * (8 + chains + most + (isfinite(r->lse) ? fabs(r->lse) : 0)); /* ref/ rounds too */
    r->normal = a->normal;
    if (!(largest < 1 / a->normal)) r->error = r->normal = INFINITY; /* a score may overflow: no bound */
    for (int n = 1; n < 4; n++) r->grown[n] = expm1(n * r->error);
    find_highest(p, r);
    for (int64_t j = 0; j < p->Skv && op >= FORWARD_MODE; j++)
        if (seen(p, r, j)) r->mean += r->high[j] * size_of_tangent(p, s, r, j);
    for (int64_t c = 0; c < p->Dv && a->O_lost && op >= BACKWARD && s->dO; c++)
        if (a->O_lost[i * p->Dv + c] > 0) r->lost += fabs(s->dO[i * p->Dv + c]) * a->O_lost[i * p->Dv + c];
    if (op == FORWARD) bound_forward(b, p, r, a);
    else if (op == BACKWARD) bound_backward(b, p, s, r, a);
    else bound_tangents(b, p, s, r, a);
    if (op == DOUBLE_BACKWARD && any && s->dO) bound_double_backward(b, p, s, r);
}

/* Absolute error of a term from products below the smallest number: negligible unless everything is tiny. */
static double floor_of(const ref_problem *p, const ref_gradgrad *s, const ref_arithmetic *a)
{
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv;
    double most = 1;
    most = largest(p->Q, rows * p->D, largest(p->K, keys * dim_k(p), largest(p->V, keys * p->Dv, most)));
    most = largest(p->W, (p->W_of_each_head ? p->Hq : 1) * weights_of_head(p), most);
    most = largest(s->Qd, rows * p->D, largest(s->Kd, keys * p->D, largest(s->Vd, keys * p->Dv, most)));
    most = largest(s->dO, rows * p->Dv, most);
    return a->denormal * (double)(8 + p->D + dim_k(p) + p->Dv + weights_of_head(p)) * most * most * most;
}

/* By how much the gradient of a cosine magnifies what is lost before it is divided by the length of its row: by the shortest one
 * that is not 0; 1 for other kinds. */
static double stretch(const ref_problem *p, const double *x, int64_t rows)
{
    double least = INFINITY;
    if (p->kind != REF_COSINE) return 1;
    for (int64_t n = 0; n < rows; n++) {
        double square = 0;
        for (int64_t c = 0; c < p->D; c++) square += x[n * p->D + c] * x[n * p->D + c];
        if (square > 0) least = fmin(least, sqrt(square));
    }
    return 1 + 2 / least;
}

static double *array(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* ReLU has the error of the score itself, even if it is clipped. */
static void relu_errors(const ref_problem *p, const double *S, double lse, double *P)
{
    for (int64_t j = 0; j < p->Skv; j++) P[j] = S[j] > -INFINITY ? (1 + fabs(S[j])) * exp(-lse) : 0;
}

/* Makes bounds positive (those of distances come out negative) and adds the floor. */
static void lift(double *x, int64_t n, double floor)
{
    for (int64_t i = 0; i < n; i++) x[i] = fabs(x[i]) + floor;
}

static int bound(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const ref_arithmetic *a, operation op)
{
    const int64_t rows = p->B * p->Hq * p->Sq, keys = p->B * p->Hkv * p->Skv,
                  of_tables = (p->relative_of_each_head ? p->Hq : 1) * p->relative_rows;
    double *S = array(p->Skv), *P = array(p->Skv), *high = array(p->Skv);
    ref_problem sizes;
    *b = (ref_bounds){.O = array(rows * p->Dv),
                      .lse = array(rows),
                      .Q = array(rows * p->D),
                      .K = array(keys * dim_k(p)),
                      .V = array(keys * p->Dv),
                      .S = array(rows * p->Skv),
                      .scale = array(p->Hq),
                      .slopes = array(p->B * p->Hq),
                      .sink = array(p->Hq),
                      .W = array((p->W_of_each_head ? p->Hq : 1) * weights_of_head(p)),
                      .relative_keys = array(of_tables * p->D),
                      .relative_values = array(of_tables * p->Dv),
                      .relative_u = array(p->Hq * p->D),
                      .relative_v = array(p->Hq * p->D),
                      .bias_table = array(p->Hq * p->buckets)};
    int ok = ref_sizes_make(&sizes, p);
    const double floor = floor_of(p, s, a);
    ok = ok && S && P && high && b->O && b->lse && b->Q && b->K && b->V && b->S && b->scale && b->slopes && b->sink && b->W &&
         b->relative_keys && b->relative_values && b->relative_u && b->relative_v && b->bias_table;
    for (int64_t n = 0; ok && n < rows; n++) {
        const int64_t b_of = n / p->Sq / p->Hq, h = n / p->Sq % p->Hq, i = n % p->Sq;
        line r = {.at = row_at(p, b_of, h, i), .sizes = &sizes, .value = row_at(&sizes, b_of, h, i)};
        r.key_head = r.at.b * p->Hkv + r.at.g;
        r.scale = fabs(r.at.scale);
        r.lse = row_weights(p, &r.at, S, P);
        if (p->normaliser == REF_BY_RELU) relu_errors(p, S, r.lse, P);
        r.score = S, r.weight = P, r.high = high;
        r.floor = floor;
        bound_row(b, p, s, &r, a, op);
    }
    if (ok && op == BACKWARD) {
        const double pairs = (double)(rows * p->Skv);
        lift(b->Q, rows * p->D, (double)p->Skv * floor * stretch(p, p->Q, rows));
        lift(b->K, keys * dim_k(p), p->Hkv ? (double)(p->Hq / p->Hkv * p->Sq) * floor * stretch(p, p->K, keys) : 0);
        lift(b->W, (p->W_of_each_head ? p->Hq : 1) * weights_of_head(p), pairs * floor);
        lift(b->relative_keys, of_tables * p->D, pairs * floor);
        lift(b->relative_u, p->Hq * p->D, pairs * floor);
        lift(b->relative_v, p->Hq * p->D, pairs * floor);
    }
    if (ok) ref_sizes_free(&sizes);
    free(S), free(P), free(high);
    if (!ok) ref_bounds_free(b);
    return ok;
}

int ref_bound_forward(ref_bounds *b, const ref_problem *p, const ref_arithmetic *a)
{
    const ref_gradgrad none = {0};
    return bound(b, p, &none, a, FORWARD);
}

int ref_bound_backward(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const ref_arithmetic *a)
{
    return bound(b, p, s, a, BACKWARD);
}

int ref_bound_jvp(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const ref_arithmetic *a)
{
    return bound(b, p, s, a, FORWARD_MODE);
}

int ref_bound_double_backward(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const ref_arithmetic *a)
{
    return bound(b, p, s, a, DOUBLE_BACKWARD);
}

void ref_bounds_free(ref_bounds *b)
{
    double *all[] = {b->O,
                     b->lse,
                     b->Q,
                     b->K,
                     b->V,
                     b->S,
                     b->scale,
                     b->slopes,
                     b->sink,
                     b->W,
                     b->bias_table,
                     b->relative_keys,
                     b->relative_values,
                     b->relative_u,
                     b->relative_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    *b = (ref_bounds){0};
}
