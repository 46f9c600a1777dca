/* SPDX-License-Identifier: MIT
 * forward.c - softmax attention, forward, by definition (../docs/notation.md has the letters). */
#include "attn_ref.h"

#include <math.h>

int ref_visible(const ref_problem *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t Sq = p->len_q ? p->len_q[b] : p->Sq;
    int64_t Skv = p->len_kv ? p->len_kv[b] : p->Skv;
    int64_t pos = i + (p->offset ? p->offset[b] : 0); /* where query i stands among the keys */
    int64_t at = ((b * p->Hq + h) * p->Sq + i) * p->Skv + j;

    if (i >= Sq || j >= Skv) return 0;
    if (p->causal && j > pos) return 0;
    if (p->window && p->window_left >= 0 && j < pos - p->window_left) return 0;
    if (p->window && p->window_right >= 0 && j > pos + p->window_right) return 0;
    if (p->keep && !p->keep[at]) return 0;
    if (p->bias && p->bias[at] == -INFINITY) return 0;
    return 1;
}

/* The score of one query q and one key k. */
static double dot(const double *q, const double *k, int64_t D)
{
    double s = 0;
    for (int64_t c = 0; c < D; c++) s += q[c] * k[c];
    return s;
}

/* One query: scores s, weights w (both [Skv]), output o [Dv]; returns its lse. */
static double attend(const ref_problem *p, int64_t b, int64_t h, int64_t i, double *s, double *w, double *o)
{
    int64_t g = h / (p->Hq / p->Hkv); /* the key and value head that query head h shares with its group */
    const double *q = p->Q + ((b * p->Hq + h) * p->Sq + i) * p->D;
    const double *K = p->K + (b * p->Hkv + g) * p->Skv * p->D;
    const double *V = p->V + (b * p->Hkv + g) * p->Skv * p->Dv;
    const double *bias = p->bias ? p->bias + ((b * p->Hq + h) * p->Sq + i) * p->Skv : 0;

    /* 1. Scores.  A key that is not visible is never read. */
    int any = 0;
    double m = -INFINITY;
    for (int64_t j = 0; j < p->Skv; j++) {
        s[j] = -INFINITY;
        if (!ref_visible(p, b, h, i, j)) continue;
        s[j] = p->scale * dot(q, K + j * p->D, p->D) + (bias ? bias[j] : 0);
        if (s[j] > m) m = s[j];
        any = 1;
    }

    /* 2. The sum of their exponentials, taken relative to the largest so that none overflows. */
    double l = 0;
    for (int64_t j = 0; j < p->Skv; j++)
        if (ref_visible(p, b, h, i, j)) l += exp(s[j] - m);
    double lse = any ? m + log(l) : -INFINITY;

    /* 3. Weights and output.  A query that sees no key gets zeros. */
    for (int64_t c = 0; c < p->Dv; c++) o[c] = 0;
    for (int64_t j = 0; j < p->Skv; j++) {
        w[j] = 0;
        if (!ref_visible(p, b, h, i, j)) continue;
        w[j] = exp(s[j] - m) / l;
        for (int64_t c = 0; c < p->Dv; c++) o[c] += w[j] * V[j * p->Dv + c];
    }
    return lse;
}

void ref_forward(const ref_problem *p, double *O, double *lse, double *S, double *P)
{
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->Hq; h++)
            for (int64_t i = 0; i < p->Sq; i++) {
                int64_t row = (b * p->Hq + h) * p->Sq + i;
                lse[row] = attend(p, b, h, i, S + row * p->Skv, P + row * p->Skv, O + row * p->Dv);
            }
}
