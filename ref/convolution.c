/* SPDX-License-Identifier: MIT
 * convolution.c - the short causal convolution by definition, and its gradients. */
#include "attn_ref.h"

#include <math.h>

/* The input of token t; those before the first one are the state. */
static double input(const ref_convolution *p, int64_t t, int64_t c)
{
    if (t >= 0) return p->x[t * p->C + c];
    return p->before ? p->before[(t + p->W - 1) * p->C + c] : 0;
}

static double sum_at(const ref_convolution *p, int64_t t, int64_t c)
{
    double sum = p->bias ? p->bias[c] : 0;
    for (int64_t i = 0; i < p->W; i++) sum += p->weight[i * p->C + c] * input(p, t - (p->W - 1) + i, c);
    return sum;
}

/* silu' is at most 1.1, and silu'' at most 0.5. */
static double activated(const ref_convolution *p, double s)
{
    if (!p->silu) return s;
    return p->absolute ? 1.1 * s : s / (1 + exp(-s));
}

static double slope(const ref_convolution *p, double s)
{
    const double sigmoid = 1 / (1 + exp(-s));
    if (!p->silu) return 1;
    return p->absolute ? 1.1 + s : sigmoid * (1 + s * (1 - sigmoid));
}

void ref_convolution_forward(const ref_convolution *p, double *y, double *after)
{
    for (int64_t c = 0; c < p->C; c++) {
        for (int64_t t = 0; t < p->L; t++) y[t * p->C + c] = activated(p, sum_at(p, t, c));
        for (int64_t i = 0; i < p->W - 1; i++) after[i * p->C + c] = input(p, p->L - (p->W - 1) + i, c);
    }
}

void ref_convolution_backward(const ref_convolution *p, const double *dy, const double *dafter, double *dx, double *dbefore,
                              double *dweight, double *dbias)
{
    const int64_t C = p->C, before = p->W - 1;
    for (int64_t c = 0; c < C; c++) {
        for (int64_t t = 0; t < p->L; t++) dx[t * C + c] = 0;
        for (int64_t i = 0; i < before; i++) dbefore[i * C + c] = 0;
        for (int64_t i = 0; dafter && i < before; i++) {
            const int64_t t = p->L - before + i;
            *(t >= 0 ? &dx[t * C + c] : &dbefore[(t + before) * C + c]) += dafter[i * C + c];
        }
        for (int64_t t = 0; t < p->L; t++) {
            const double g = dy[t * C + c] * slope(p, sum_at(p, t, c));
            dbias[c] += g;
            for (int64_t i = 0; i < p->W; i++) {
                const int64_t from = t - before + i;
                dweight[i * C + c] += g * input(p, from, c);
                *(from >= 0 ? &dx[from * C + c] : &dbefore[(from + before) * C + c]) += g * p->weight[i * C + c];
            }
        }
    }
}
