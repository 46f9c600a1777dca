/* SPDX-License-Identifier: MIT
 * expect.c - runs the reference over the data of a call, whatever its types and strides. */
#include "expect.h"

#include <math.h>
#include <stdlib.h>

#include "element.h"

static void fill_size(int64_t size[4], int64_t b, int64_t h, int64_t t, int64_t c)
{
    size[0] = b;
    size[1] = h;
    size[2] = t;
    size[3] = c;
}

tensor_sizes tensor_sizes_of(const attn_shape *s)
{
    tensor_sizes sizes;
    fill_size(sizes.q, s->batch, s->heads_q, s->len_q, s->dim_qk);
    fill_size(sizes.k, s->batch, s->heads_kv, s->len_kv, s->dim_qk);
    fill_size(sizes.v, s->batch, s->heads_kv, s->len_kv, s->dim_v);
    fill_size(sizes.o, s->batch, s->heads_q, s->len_q, s->dim_v);
    fill_size(sizes.lse, s->batch, s->heads_q, s->len_q, 1);
    fill_size(sizes.weights, s->batch, s->heads_q, s->len_q, s->len_kv);
    return sizes;
}

int64_t tensor_count(const int64_t size[4]) { return size[0] * size[1] * size[2] * size[3]; }

attn_problem problem_resolve(const attn_problem *given)
{
    attn_problem p = *given;
    if (!p.q.dtype) p.q.dtype = ATTN_F32;
    if (!p.k.dtype) p.k.dtype = p.q.dtype;
    if (!p.v.dtype) p.v.dtype = p.q.dtype;
    if (!p.o.dtype) p.o.dtype = p.q.dtype;
    const attn_dtype compute = p.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    if (!p.bias.bias.dtype) p.bias.bias.dtype = compute;
    if (!p.want.lse_layout.dtype) p.want.lse_layout.dtype = compute;
    if (!p.want.weights_layout.dtype) p.want.weights_layout.dtype = compute;
    if (!p.mask.index_dtype) p.mask.index_dtype = ATTN_I64;
    p.mask.mask.dtype = ATTN_BOOL;
    if (p.score.scale_kind == ATTN_SCALE_DEFAULT) p.score.scale = p.shape.dim_qk > 0 ? 1 / sqrt((double)p.shape.dim_qk) : 1;
    return p;
}

/* Never NULL for want of elements. */
static double *doubles(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

static int64_t *read_index(const void *src, attn_dtype dtype, int64_t n)
{
    int64_t *values = calloc((size_t)n + 1, sizeof *values);
    for (int64_t i = 0; values && i < n; i++)
        values[i] = (int64_t)element_read(dtype, (const char *)src + (size_t)i * attn_dtype_size(dtype));
    return values;
}

/* Sums of |q_c k_jc| and |k_jc| over channels, where the scores that they belong to are finite. */
static void sum_products(expectation *e)
{
    const ref_problem *r = &e->ref;
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t h = 0; h < r->Hq; h++) {
            const int64_t g = h / (r->Hq / r->Hkv);
            const double *K = e->K + (b * r->Hkv + g) * r->Skv * r->D;
            const double scale = (r->scale_of_head ? r->scale_of_head[h] : r->scale) / (r->temperature > 0 ? r->temperature : 1);
            for (int64_t i = 0; i < r->Sq; i++) {
                const int64_t row = (b * r->Hq + h) * r->Sq + i;
                const double *q = e->Q + row * r->D;
                for (int64_t j = 0; j < r->Skv; j++) {
                    if (e->S[row * r->Skv + j] == -INFINITY) continue;
                    double sum = 0;
                    for (int64_t c = 0; c < r->D; c++) sum += fabs(q[c] * K[j * r->D + c]);
                    e->sum_qk[row * r->Skv + j] = sum;
                    e->dot[row * r->Skv + j] = fabs(scale) * sum;
                }
            }
        }
    for (int64_t j = 0; j < r->B * r->Hkv * r->Skv; j++)
        for (int64_t c = 0; c < r->D; c++) e->sum_k[j] += fabs(e->K[j * r->D + c]);
}

/* What is added to the scores, in absolute values. */
static void sum_added(expectation *e)
{
    const ref_problem *r = &e->ref;
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t h = 0; h < r->Hq; h++)
            for (int64_t i = 0; i < r->Sq; i++)
                for (int64_t j = 0; j < r->Skv; j++) {
                    const int64_t at = ((b * r->Hq + h) * r->Sq + i) * r->Skv + j;
                    const double distance = fabs((double)(i + (r->offset ? r->offset[b] : 0) - j));
                    if (e->S[at] == -INFINITY) continue;
                    if (e->bias) e->added[at] = fabs(e->bias[at]);
                    if (e->slopes) e->added[at] += fabs(e->slopes[b * r->Hq + h]) * distance;
                }
}

/* A dense array of the compute type. */
static double *read_array(const void *src, attn_dtype dtype, int64_t n)
{
    double *values = doubles(n);
    for (int64_t i = 0; values && i < n; i++)
        values[i] = element_read(dtype, (const char *)src + (size_t)i * attn_dtype_size(dtype));
    return values;
}

/* ALiBi slopes [B][Hq] from [Hq] or [B][Hq]. */
static double *read_slopes(const attn_problem *p, const void *src, attn_dtype dtype)
{
    const int64_t B = p->shape.batch, Hq = p->shape.heads_q;
    double *slopes = read_array(src, dtype, p->bias.alibi == ATTN_ALIBI_HEAD ? Hq : B * Hq), *all = doubles(B * Hq);
    for (int64_t n = 0; slopes && all && n < B * Hq; n++) all[n] = slopes[p->bias.alibi == ATTN_ALIBI_HEAD ? n % Hq : n];
    free(slopes);
    return slopes ? all : NULL;
}

int expectation_create(expectation *e, const attn_problem *problem, const attn_args *args)
{
    const attn_problem p = problem_resolve(problem);
    const tensor_sizes sizes = tensor_sizes_of(&p.shape);
    const int64_t scores = tensor_count(sizes.weights), B = p.shape.batch;
    *e = (expectation){.compute = p.q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32};

    e->Q = doubles(tensor_count(sizes.q));
    e->K = doubles(tensor_count(sizes.k));
    e->V = doubles(tensor_count(sizes.v));
    e->O = doubles(tensor_count(sizes.o));
    e->lse = doubles(tensor_count(sizes.lse));
    e->S = doubles(scores);
    e->P = doubles(scores);
    e->dot = doubles(scores);
    e->sum_qk = doubles(scores);
    e->sum_k = doubles(B * p.shape.heads_kv * p.shape.len_kv);
    int ok = e->Q && e->K && e->V && e->O && e->lse && e->S && e->P && e->dot && e->sum_qk && e->sum_k;
    if (p.bias.additive) ok &= (e->bias = doubles(scores)) != NULL;
    if (p.bias.additive || p.bias.alibi) ok &= (e->added = doubles(scores)) != NULL;
    if (p.bias.alibi) ok &= (e->slopes = read_slopes(&p, args->slopes, e->compute)) != NULL;
    if (p.bias.sink) ok &= (e->sink = read_array(args->sink, e->compute, p.shape.heads_q)) != NULL;
    if (p.score.scale_kind == ATTN_SCALE_PER_HEAD)
        ok &= (e->scale_of_head = read_array(args->scale, e->compute, p.shape.heads_q)) != NULL;
    if (p.mask.boolean) ok &= (e->keep = calloc((size_t)scores + 1, 1)) != NULL;
    if (p.mask.lengths_q) ok &= (e->len_q = read_index(args->lengths_q, p.mask.index_dtype, B)) != NULL;
    if (p.mask.lengths_kv) ok &= (e->len_kv = read_index(args->lengths_kv, p.mask.index_dtype, B)) != NULL;
    if (p.mask.align == ATTN_ALIGN_OFFSET) ok &= (e->offset = read_index(args->offset, p.mask.index_dtype, B)) != NULL;
    if (p.mask.align == ATTN_ALIGN_BOTTOM_RIGHT) ok &= (e->offset = calloc((size_t)B + 1, sizeof *e->offset)) != NULL;
    if (!ok) {
        expectation_destroy(e);
        return 0;
    }

    element_gather(args->q, &p.q, sizes.q, e->Q);
    element_gather(args->k, &p.k, sizes.k, e->K);
    element_gather(args->v, &p.v, sizes.v, e->V);
    if (e->bias) element_gather(args->bias, &p.bias.bias, sizes.weights, e->bias);
    if (e->keep) {
        element_gather(args->mask, &p.mask.mask, sizes.weights, e->S); /* S is free until the reference fills it */
        for (int64_t j = 0; j < scores; j++) e->keep[j] = e->S[j] != 0;
    }
    if (p.mask.align == ATTN_ALIGN_BOTTOM_RIGHT)
        for (int64_t b = 0; b < B; b++)
            e->offset[b] = (e->len_kv ? e->len_kv[b] : p.shape.len_kv) - (e->len_q ? e->len_q[b] : p.shape.len_q);

    e->ref = (ref_problem){.B = B,
                           .Hq = p.shape.heads_q,
                           .Hkv = p.shape.heads_kv,
                           .Sq = p.shape.len_q,
                           .Skv = p.shape.len_kv,
                           .D = p.shape.dim_qk,
                           .Dv = p.shape.dim_v,
                           .Q = e->Q,
                           .K = e->K,
                           .V = e->V,
                           .scale = p.score.scale,
                           .causal = p.mask.causal,
                           .window = p.mask.window,
                           .window_left = p.mask.window_left,
                           .window_right = p.mask.window_right,
                           .offset = e->offset,
                           .len_q = e->len_q,
                           .len_kv = e->len_kv,
                           .chunk = p.mask.chunk,
                           .keep = e->keep,
                           .bias = e->bias,
                           .scale_of_head = e->scale_of_head,
                           .temperature = p.score.temperature,
                           .softcap = p.score.softcap,
                           .slopes = e->slopes,
                           .sink = e->sink};
    ref_forward(&e->ref, e->O, e->lse, e->S, e->P);
    sum_products(e);
    if (e->added) sum_added(e);
    return 1;
}

void expectation_destroy(expectation *e)
{
    void *memory[] = {e->Q, e->K,      e->V,   e->bias,  e->keep,  e->offset, e->len_q, e->len_kv,       e->O, e->lse, e->S,
                      e->P, e->sum_qk, e->dot, e->sum_k, e->added, e->slopes, e->sink,  e->scale_of_head};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
    *e = (expectation){0};
}
