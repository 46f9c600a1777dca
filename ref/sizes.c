/* SPDX-License-Identifier: MIT
 * sizes.c - a problem in absolute values, for the sizes of scores and gradients. */
#include <math.h>
#include <stdlib.h>

#include "attn_bound.h"
#include "row.h"

static double *absolute(const double *x, int64_t n, double sign, int *ok)
{
    double *sizes = x ? calloc((size_t)n + 1, sizeof *sizes) : NULL;
    *ok &= !x == !sizes;
    for (int64_t i = 0; sizes && i < n; i++) sizes[i] = sign * fabs(x[i]);
    return sizes;
}

int ref_sizes_make(ref_problem *sizes, const ref_problem *p)
{
    const int64_t rows = (p->relative_of_each_head ? p->Hq : 1) * p->relative_rows, of_heads = p->Hq * p->D;
    int ok = 1;
    *sizes = *p;
    sizes->Q = absolute(p->Q, p->B * p->Hq * p->Sq * p->D, 1, &ok);
    sizes->K = absolute(p->K, p->B * p->Hkv * p->Skv * dim_k(p), p->kind == REF_DISTANCE ? -1 : 1, &ok); /* q - k is |q| + |k| */
    sizes->V = absolute(p->V, p->B * p->Hkv * p->Skv * p->Dv, 1, &ok);
    sizes->W = absolute(p->W, (p->W_of_each_head ? p->Hq : 1) * weights_of_head(p), 1, &ok);
    sizes->relative_keys = absolute(p->relative_keys, rows * p->D, 1, &ok);
    sizes->relative_values = absolute(p->relative_values, rows * p->Dv, 1, &ok);
    sizes->relative_u = absolute(p->relative_u, of_heads, 1, &ok);
    sizes->relative_v = absolute(p->relative_v, of_heads, 1, &ok);
    if (!ok) ref_sizes_free(sizes);
    return ok;
}

void ref_sizes_free(ref_problem *sizes)
{
    const double *all[] = {sizes->Q,          sizes->K,         sizes->V, sizes->W, sizes->relative_keys, sizes->relative_values,
                           sizes->relative_u, sizes->relative_v};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free((void *)(uintptr_t)all[i]);
    *sizes = (ref_problem){0};
}

int64_t ref_score_roundings(const ref_problem *p)
{
    switch (p->kind) {
    case REF_DOT:
        return p->D + (p->relative_keys ? 2 : 0);
    case REF_GENERAL:
        return p->D + dim_k(p) + 1;
    case REF_METRIC:
        return 2 * p->D + weights_of_head(p) / (p->D > 0 ? p->D : 1) + 2;
    case REF_ADDITIVE:
        return p->D + 16;
    default:
        return 2 * p->D + 8;
    }
}

double ref_score_size(const ref_problem *sizes, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const row r = row_at(sizes, b, h, i);
    if (sizes->kind != REF_ADDITIVE) return fabs(row_raw_score(sizes, &r, j));
    const double *W = sizes->W + (sizes->W_of_each_head ? h * weights_of_head(sizes) : 0);
    double size = 0;
    for (int64_t a = 0; a < sizes->D; a++) /* q + b is rounded once, if there is a b */
        size += W[a] * (sizes->R == 2 ? 1 + (r.q[a] + W[sizes->D + a]) / (double)(sizes->D + 18) : 1);
    return size;
}

/* The derivative of the cosine by x: y/|y| and its part along x/|x|, over |x|, in absolute values. */
static void cosine_sizes(const double *x, const double *y, int64_t D, double dx, double *to)
{
    const double lx = sqrt(dot(x, x, D)), ly = sqrt(dot(y, y, D));
    if (lx == 0 || ly == 0) return;
    const double cosine = dot(x, y, D) / (lx * ly);
    for (int64_t a = 0; a < D; a++) to[a] += dx * (y[a] / ly + cosine * x[a] / lx) / lx;
}

/* The derivative of tanh, 4 r (1 - r), has an error that is small relative to 1. */
static void additive_sizes(const ref_problem *sizes, const ref_gradients *G, const row *r, int64_t key, double dx)
{
    const int64_t D = sizes->D, from = sizes->W_of_each_head ? r->h * weights_of_head(sizes) : 0;
    for (int64_t a = 0; a < D; a++) {
        const double moved = dx * sizes->W[from + a];
        G->dQ[r->index * D + a] += moved;
        G->dK[key * D + a] += moved;
        G->dW[from + a] += dx;
        if (sizes->R == 2) G->dW[from + D + a] += moved;
    }
}

void ref_gradient_size(const ref_problem *sizes, const ref_gradients *G, int64_t b, int64_t h, int64_t i, int64_t j, double dx)
{
    const row r = row_at(sizes, b, h, i);
    const int64_t D = sizes->D, key = (b * sizes->Hkv + r.g) * sizes->Skv + j;
    if (sizes->kind == REF_ADDITIVE) {
        additive_sizes(sizes, G, &r, key, dx);
    } else if (sizes->kind == REF_COSINE) {
        cosine_sizes(r.q, r.K + j * D, D, dx, G->dQ + r.index * D);
        cosine_sizes(r.K + j * D, r.q, D, dx, G->dK + key * D);
    } else {
        row_raw_gradient(sizes, G, &r, j, dx);
    }
}
