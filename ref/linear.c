/* SPDX-License-Identifier: MIT
 *
 * linear.c - linear attention by definition: a state for each key head, token by token.  Its gradients are those of the same loop,
 * run backwards with every state kept.
 */
#include "attn_ref.h"

#include <math.h>
#include <stdlib.h>

static int64_t feature_count(const ref_linear *p) { return p->map <= REF_SOFTMAX ? p->D : p->map == REF_FAVOR ? p->M : 2 * p->M; }

static double minus(const ref_linear *p, double a, double b) { return p->absolute ? a + b : a - b; }
static double term(const ref_linear *p, double a) { return p->absolute ? fabs(a) : a; }

static void features(const ref_linear *p, const double *x, double *f)
{
    double sum = 0, square = 0;
    for (int64_t c = 0; c < p->D; c++) sum += exp(x[c]), square += x[c] * x[c] * p->feature_scale * p->feature_scale;
    for (int64_t c = 0; p->map <= REF_SOFTMAX && c < p->D; c++) {
        if (p->map == REF_ELU1) f[c] = x[c] > 0 ? x[c] + 1 : exp(x[c]);
        if (p->map == REF_IDENTITY) f[c] = x[c];
        if (p->map == REF_RELU) f[c] = x[c] > 0 ? x[c] : 0;
        if (p->map == REF_SOFTMAX) f[c] = exp(x[c]) / sum;
    }
    for (int64_t m = 0; p->map > REF_SOFTMAX && m < p->M; m++) {
        double u = 0, factor = (p->map == REF_TRIGONOMETRIC ? exp(square / 2) : 1) / sqrt((double)p->M);
        for (int64_t c = 0; c < p->D; c++) u += p->omega[m * p->D + c] * x[c] * p->feature_scale;
        if (p->map == REF_FAVOR) {
            f[m] = exp(u - square / 2) / sqrt((double)p->M);
        } else {
            f[m] = cos(u) * factor;
            f[p->M + m] = sin(u) * factor;
        }
    }
    for (int64_t c = 0; c < feature_count(p); c++) f[c] = term(p, f[c]);
}

/* dx from df: the sum over features of df/dx. */
static void features_backward(const ref_linear *p, const double *x, const double *f, const double *df, double *dx)
{
    double inner = 0;
    for (int64_t c = 0; p->map == REF_SOFTMAX && c < p->D; c++) inner += df[c] * f[c];
    for (int64_t c = 0; c < p->D; c++) {
        dx[c] = 0;
        if (p->map == REF_ELU1) dx[c] = x[c] > 0 ? df[c] : df[c] * f[c];
        if (p->map == REF_IDENTITY) dx[c] = df[c];
        if (p->map == REF_RELU) dx[c] = x[c] > 0 ? df[c] : 0;
        if (p->map == REF_SOFTMAX) dx[c] = f[c] * minus(p, df[c], inner);
        for (int64_t m = 0; p->map > REF_SOFTMAX && m < p->M; m++) {
            const double w = term(p, p->omega[m * p->D + c]) * p->feature_scale,
                         s = term(p, x[c]) * p->feature_scale * p->feature_scale;
            if (p->map == REF_FAVOR) {
                dx[c] += df[m] * f[m] * minus(p, w, s);
            } else {
                dx[c] += w * minus(p, df[p->M + m] * f[m], df[m] * f[p->M + m]);
                if (p->map == REF_TRIGONOMETRIC) dx[c] += s * (df[m] * f[m] + df[p->M + m] * f[p->M + m]);
            }
        }
    }
}

static double gate(const ref_linear *p, int64_t head, int64_t t, int64_t c)
{
    if (!p->log_decay) return 1;
    int64_t count = p->decay_channels ? feature_count(p) : 1;
    return exp(p->log_decay[(head * p->Skv + t) * count + (p->decay_channels ? c : 0)]);
}

/* The guarded denominator of n; *slope is its derivative. */
static double guarded(const ref_linear *p, double n, double *slope)
{
    *slope = 0;
    if (p->denominator == REF_NONE) return 1;
    if (p->denominator == REF_CLAMP && n < p->epsilon) return p->epsilon;
    *slope = 1;
    return p->denominator == REF_ADD ? n + p->epsilon : n;
}

/* What the state, decayed by a, returns for the key of a token. */
static double recalled(const double *S, const double *k, const double *a, const ref_linear *p, int64_t d)
{
    double sum = 0;
    for (int64_t c = 0; c < feature_count(p); c++) sum += k[c] * a[c] * S[c * p->Dv + d];
    return sum;
}

/* What the state before decay returns for the erase vector of token t. */
static double erased(const double *S, const ref_linear *p, int64_t head, int64_t t, int64_t d)
{
    const int64_t F = feature_count(p);
    double sum = 0;
    for (int64_t c = 0; c < F; c++) sum += p->erase[(head * p->Skv + t) * F + c] * S[c * p->Dv + d];
    return sum;
}

typedef struct one_head {
    double *f, *a; /* of its keys: features and decays [Skv][F] */
    double *S, *z; /* before and after each token [Skv+1][F][Dv], [Skv+1][F] */
    double *q, *dS, *dz, *dk, *dv, *dq;
} one_head;

/* States before and after every token of a key head. */
static void run(const ref_linear *p, int64_t head, const one_head *h)
{
    const int64_t F = feature_count(p), Dv = p->Dv;
    double *f = h->f, *S = h->S, *z = h->z;
    for (int64_t c = 0; c < F; c++) {
        z[c] = p->z0 ? p->z0[head * F + c] : 0;
        for (int64_t d = 0; d < Dv; d++) S[c * Dv + d] = p->S0 ? p->S0[(head * F + c) * Dv + d] : 0;
    }
    for (int64_t t = 0; t < p->Skv; t++) {
        const double *k = f + t * F, *v = p->V + (head * p->Skv + t) * Dv, *before = S + t * F * Dv;
        double *after = S + (t + 1) * F * Dv, *a = h->a + t * F;
        for (int64_t c = 0; c < F; c++) a[c] = gate(p, head, t, c);
        features(p, p->K + (head * p->Skv + t) * p->D, f + t * F);
        for (int64_t d = 0; d < Dv; d++) {
            double u = v[d];
            if (p->beta) u = p->beta[head * p->Skv + t] * (v[d] - recalled(before, k, a, p, d));
            for (int64_t c = 0; c < F; c++) after[c * Dv + d] = a[c] * before[c * Dv + d] + k[c] * u;
            if (!p->erase) continue;
            const double y = erased(before, p, head, t, d);
            for (int64_t c = 0; c < F; c++) after[c * Dv + d] += p->write[(head * p->Skv + t) * F + c] * y;
        }
        for (int64_t c = 0; c < F; c++) z[(t + 1) * F + c] = a[c] * z[t * F + c] + k[c];
    }
}

static void head_close(one_head *h)
{
    free(h->f), free(h->a), free(h->S), free(h->z), free(h->q), free(h->dS);
    free(h->dz), free(h->dk), free(h->dv), free(h->dq);
}

/* Returns 0 if out of memory. */
static int head_open(const ref_linear *p, one_head *h)
{
    const size_t F = (size_t)feature_count(p) + 1, n = (size_t)p->Skv + 1, Dv = (size_t)p->Dv + 1;
    *h = (one_head){calloc(n * F, sizeof(double)), calloc(n * F, sizeof(double)), calloc(n * F * Dv, sizeof(double)),
                    calloc(n * F, sizeof(double)), calloc(F, sizeof(double)),     calloc(F * Dv, sizeof(double)),
                    calloc(F, sizeof(double)),     calloc(n * F, sizeof(double)), calloc(n * Dv, sizeof(double)),
                    calloc(F, sizeof(double))};
    if (h->f && h->a && h->S && h->z && h->q && h->dS && h->dz && h->dk && h->dv && h->dq) return 1;
    head_close(h);
    return 0;
}

int ref_linear_forward(const ref_linear *p, double *O, double *n, double *S1, double *z1)
{
    const int64_t F = feature_count(p), Dv = p->Dv;
    one_head h;
    if (!head_open(p, &h)) return 0;
    for (int64_t head = 0; head < p->B * p->Hkv; head++) {
        run(p, head, &h);
        for (int64_t row = 0; row < p->Hq / p->Hkv * p->Sq; row++) {
            const int64_t i = row % p->Sq, index = head * (p->Hq / p->Hkv) * p->Sq + row, at = p->causal ? i + 1 : p->Skv;
            double slope;
            features(p, p->Q + index * p->D, h.q);
            n[index] = 0;
            for (int64_t c = 0; c < F; c++) n[index] += p->scale * h.q[c] * h.z[at * F + c];
            for (int64_t d = 0; d < Dv; d++) {
                double sum = 0;
                for (int64_t c = 0; c < F; c++) sum += h.q[c] * h.S[(at * F + c) * Dv + d];
                O[index * Dv + d] = p->scale * sum / guarded(p, n[index], &slope);
            }
        }
        for (int64_t c = 0; c < F; c++) {
            z1[head * F + c] = h.z[p->Skv * F + c];
            for (int64_t d = 0; d < Dv; d++) S1[(head * F + c) * Dv + d] = h.S[(p->Skv * F + c) * Dv + d];
        }
    }
    head_close(&h);
    return 1;
}

/* One query: dQ, and its contribution to the gradients of the state and sum that it reads. */
static void query_backward(const ref_linear *p, const ref_linear_gradients *g, one_head *h, int64_t index, const double *S,
                           const double *z)
{
    const int64_t F = feature_count(p), Dv = p->Dv;
    double n = 0, slope, e = 0;
    features(p, p->Q + index * p->D, h->q);
    for (int64_t c = 0; c < F; c++) n += p->scale * h->q[c] * z[c], h->dq[c] = 0;
    const double guard = guarded(p, n, &slope);
    for (int64_t d = 0; d < Dv; d++) {
        double a = p->scale * g->dO[index * Dv + d] / guard, sum = 0;
        for (int64_t c = 0; c < F; c++) {
            sum += h->q[c] * S[c * Dv + d];
            h->dq[c] += a * S[c * Dv + d];
            h->dS[c * Dv + d] += a * h->q[c];
        }
        e = minus(p, e, slope * a * (g->O ? g->O[index * Dv + d] : p->scale * sum / guard));
    }
    for (int64_t c = 0; c < F; c++) {
        h->dq[c] += e * z[c];
        h->dz[c] += e * h->q[c];
    }
    features_backward(p, p->Q + index * p->D, h->q, h->dq, g->dQ + index * p->D);
}

/* One key: from the gradient of the state after it to that before it. */
static void key_backward(const ref_linear *p, const ref_linear_gradients *g, one_head *h, int64_t head, int64_t t)
{
    const int64_t F = feature_count(p), Dv = p->Dv, index = head * p->Skv + t, count = p->decay_channels ? F : 1;
    const double *k = h->f + t * F, *v = p->V + index * Dv, *S = h->S + t * F * Dv, *z = h->z + t * F, *a = h->a + t * F;
    double *dk = h->dk;
    for (int64_t c = 0; c < F; c++) dk[c] = h->dz[c];
    for (int64_t c = 0; p->log_decay && c < count; c++) g->dlog_decay[index * count + c] = 0;
    for (int64_t c = 0; p->erase && c < F; c++) g->derase[index * F + c] = g->dwrite[index * F + c] = 0;
    if (p->beta) g->dbeta[index] = 0;
    for (int64_t d = 0; d < Dv; d++) {
        double u = v[d], du = 0, back = 0, y = 0, dy = 0;
        if (p->beta) u = p->beta[index] * (v[d] - recalled(S, k, a, p, d));
        for (int64_t c = 0; c < F; c++) {
            du += h->dS[c * Dv + d] * k[c];
            dk[c] += h->dS[c * Dv + d] * u;
        }
        g->dV[index * Dv + d] = p->beta ? p->beta[index] * du : du;
        if (p->beta) {
            g->dbeta[index] += du * (v[d] - recalled(S, k, a, p, d));
            back = -p->beta[index] * du;
        }
        if (p->erase) y = erased(S, p, head, t, d);
        for (int64_t c = 0; p->erase && c < F; c++) {
            dy += h->dS[c * Dv + d] * p->write[index * F + c];
            g->dwrite[index * F + c] += h->dS[c * Dv + d] * y;
        }
        for (int64_t c = 0; c < F; c++) {
            const double decay = a[c];
            double *ds = &h->dS[c * Dv + d];
            dk[c] += back * decay * S[c * Dv + d];
            *ds += back * k[c];
            if (p->log_decay) g->dlog_decay[index * count + (p->decay_channels ? c : 0)] += *ds * decay * S[c * Dv + d];
            *ds *= decay;
            if (!p->erase) continue;
            *ds += dy * p->erase[index * F + c];
            g->derase[index * F + c] += dy * S[c * Dv + d];
        }
    }
    for (int64_t c = 0; c < F; c++) {
        const double decay = a[c];
        if (p->log_decay) g->dlog_decay[index * count + (p->decay_channels ? c : 0)] += h->dz[c] * decay * z[c];
        h->dz[c] *= decay;
    }
    features_backward(p, p->K + index * p->D, k, dk, g->dK + index * p->D);
}

int ref_linear_backward(const ref_linear *p, const ref_linear_gradients *g)
{
    const int64_t F = feature_count(p), Dv = p->Dv, group = p->Hkv ? p->Hq / p->Hkv : 0;
    one_head h;
    if (!head_open(p, &h)) return 0;
    for (int64_t head = 0; head < p->B * p->Hkv; head++) {
        run(p, head, &h);
        for (int64_t c = 0; c < F; c++) {
            h.dz[c] = g->dz1 ? g->dz1[head * F + c] : 0;
            for (int64_t d = 0; d < Dv; d++) h.dS[c * Dv + d] = g->dS1 ? g->dS1[(head * F + c) * Dv + d] : 0;
        }
        /* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): head_close frees them all */
        for (int64_t row = 0; !p->causal && row < group * p->Sq; row++)
            query_backward(p, g, &h, head * group * p->Sq + row, h.S + p->Skv * F * Dv, h.z + p->Skv * F);
        for (int64_t t = p->Skv; t-- > 0;) {
            for (int64_t k = 0; p->causal && k < group; k++)
                query_backward(p, g, &h, (head * group + k) * p->Sq + t, h.S + (t + 1) * F * Dv, h.z + (t + 1) * F);
            key_backward(p, g, &h, head, t);
        }
        for (int64_t c = 0; c < F; c++) {
            if (g->dz0) g->dz0[head * F + c] = h.dz[c];
            for (int64_t d = 0; g->dS0 && d < Dv; d++) g->dS0[(head * F + c) * Dv + d] = h.dS[c * Dv + d];
        }
    }
    head_close(&h);
    return 1;
}
