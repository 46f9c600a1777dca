/* SPDX-License-Identifier: MIT
 * expect.c - runs the reference over the data of a call, whatever its types and strides. */
#include "expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../problem.h"
#include "element.h"

static void fill_size(int64_t size[4], int64_t b, int64_t h, int64_t t, int64_t c)
{
    size[0] = b;
    size[1] = h;
    size[2] = t;
    size[3] = c;
}

tensor_sizes tensor_sizes_of(const attn_problem *problem)
{
    const attn_shape *s = &problem->shape;
    tensor_sizes sizes;
    fill_size(sizes.q, s->batch, s->heads_q, s->len_q, s->dim_qk);
    fill_size(sizes.k, s->batch, s->heads_kv, s->len_kv, problem_dim_k(problem));
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
    p.mask.mask.dtype = p.mask.blocks.dtype = p.dropout.given_layout.dtype = ATTN_BOOL;
    if (p.score.scale_kind == ATTN_SCALE_DEFAULT)
        p.score.scale = p.score.kind == ATTN_SCORE_DOT && p.shape.dim_qk > 0 ? 1 / sqrt((double)p.shape.dim_qk) : 1;
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

/* sum_c |r_c| of the largest row of relative keys. */
static double largest_row(const expectation *e)
{
    const ref_problem *r = &e->ref;
    double most = 0;
    for (int64_t t = 0; e->relative_keys && t < (r->relative_of_each_head ? r->Hq : 1) * r->relative_rows; t++) {
        double sum = 0;
        for (int64_t c = 0; c < r->D; c++) sum += fabs(e->relative_keys[t * r->D + c]);
        most = fmax(most, sum);
    }
    return most;
}

/* What scores are made of, where they are finite, and the sizes of keys as the walk has them. */
static void sum_products(expectation *e)
{
    const ref_problem *r = &e->ref;
    for (int64_t b = 0; b < r->B; b++)
        for (int64_t h = 0; h < r->Hq; h++) {
            const double scale = (r->scale_of_head ? r->scale_of_head[h] : r->scale) / (r->temperature > 0 ? r->temperature : 1);
            for (int64_t i = 0; i < r->Sq; i++) {
                const int64_t row = (b * r->Hq + h) * r->Sq + i;
                for (int64_t j = 0; j < r->Skv; j++) {
                    if (e->S[row * r->Skv + j] == -INFINITY) continue;
                    const double sum = ref_score_size(&e->sizes, b, h, i, j);
                    e->sum_qk[row * r->Skv + j] = sum;
                    e->dot[row * r->Skv + j] = fabs(scale) * sum;
                }
            }
        }
    const int64_t D = r->Dk ? r->Dk : r->D;
    const double rows = largest_row(e), *w = e->W;
    for (int64_t j = 0; j < r->B * r->Hkv * r->Skv; j++) {
        const double *k = e->K + j * D;
        double sum = 0, square = 0;
        for (int64_t c = 0; c < D; c++) sum += fabs(k[c]), square += k[c] * k[c];
        if (r->kind == REF_GENERAL) sum *= (double)(D + 2);
        for (int64_t n = 0; r->kind == REF_METRIC && n < e->numbers_of_w; n++) sum += (double)D * fabs(w[n] * k[n % D]);
        sum += rows;
        e->sum_k[j] = r->kind == REF_COSINE     ? (square > 0 ? sum / sqrt(square) : 0)
                      : r->kind == REF_DISTANCE ? sum + 1 + square
                                                : sum;
    }
}

static int64_t place_in_table(const ref_problem *r, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t distance = i + (r->offset ? r->offset[b] : 0) - j;
    return (r->bias_table_of_each_head ? h * r->buckets : 0) + ref_bucket(r, distance);
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
                    if (e->bias_table) e->added[at] += fabs(e->bias_table[place_in_table(r, b, h, i, j)]);
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

/* ---- lengths, masks, dropout ---- */

/* cu_seqlens, and the lengths that follow. */
static int64_t *read_begins(const void *src, attn_dtype dtype, int64_t B, int64_t **length)
{
    int64_t *begin = read_index(src, dtype, B + 1);
    *length = calloc((size_t)B + 1, sizeof **length);
    for (int64_t b = 0; begin && *length && b < B; b++) (*length)[b] = begin[b + 1] - begin[b];
    return begin;
}

static int read_lengths(expectation *e, const attn_problem *p, const attn_args *args)
{
    const int64_t B = p->shape.batch;
    const attn_dtype index = p->mask.index_dtype;
    int ok = 1;
    if (p->mask.packed) {
        e->begin_q = read_begins(args->cu_seqlens_q, index, B, &e->len_q);
        e->begin_kv = read_begins(args->cu_seqlens_kv, index, B, &e->len_kv);
        ok &= e->begin_q && e->begin_kv && e->len_q && e->len_kv;
    }
    if (p->mask.lengths_q) ok &= (e->len_q = read_index(args->lengths_q, index, B)) != NULL;
    if (p->mask.lengths_kv) ok &= (e->len_kv = read_index(args->lengths_kv, index, B)) != NULL;
    if (p->mask.align == ATTN_ALIGN_OFFSET) ok &= (e->offset = read_index(args->offset, index, B)) != NULL;
    if (p->mask.align != ATTN_ALIGN_BOTTOM_RIGHT) return ok;
    ok &= (e->offset = calloc((size_t)B + 1, sizeof *e->offset)) != NULL;
    for (int64_t b = 0; ok && b < B; b++)
        e->offset[b] = (e->len_kv ? e->len_kv[b] : p->shape.len_kv) - (e->len_q ? e->len_q[b] : p->shape.len_q);
    return ok;
}

/* Clears keep where a mask has 0, of which an element speaks for block_q queries and block_kv keys. */
static int apply_mask(expectation *e, const attn_shape *s, const void *mask, const attn_layout *layout, int64_t block_q,
                      int64_t block_kv)
{
    const int64_t size[4] = {s->batch, s->heads_q, (s->len_q + block_q - 1) / block_q, (s->len_kv + block_kv - 1) / block_kv};
    double *values = doubles(tensor_count(size));
    if (!values) return 0;
    element_gather(mask, layout, size, values);
    for (int64_t row = 0; row < s->batch * s->heads_q * s->len_q; row++)
        for (int64_t j = 0; j < s->len_kv; j++) {
            const int64_t head = row / s->len_q, i = row % s->len_q;
            if (values[(head * size[2] + i / block_q) * size[3] + j / block_kv] == 0) e->keep[row * s->len_kv + j] = 0;
        }
    free(values);
    return 1;
}

static int read_masks(expectation *e, const attn_problem *p, const attn_args *args)
{
    const int64_t scores = tensor_count(tensor_sizes_of(p).weights);
    int ok = 1;
    if (!p->mask.boolean && !p->mask.block) return 1;
    if (!(e->keep = malloc((size_t)scores + 1))) return 0;
    memset(e->keep, 1, (size_t)scores);
    if (p->mask.boolean) ok &= apply_mask(e, &p->shape, args->mask, &p->mask.mask, 1, 1);
    if (p->mask.block) ok &= apply_mask(e, &p->shape, args->blocks, &p->mask.blocks, p->mask.block_q, p->mask.block_kv);
    return ok;
}

static int read_dropout(expectation *e, const attn_problem *p, const attn_args *args)
{
    const attn_shape *s = &p->shape;
    const attn_dropout *d = &p->dropout;
    const tensor_sizes sizes = tensor_sizes_of(p);
    const double factor = d->probability < 1 ? 1 / (1 - d->probability) : 0;
    if (d->probability == 0 && !d->given) return 1;
    if (!(e->Z = doubles(tensor_count(sizes.weights)))) return 0;
    if (d->given) element_gather(args->dropout_given, &d->given_layout, sizes.weights, e->Z);
    for (int64_t n = 0; n < tensor_count(sizes.weights); n++) {
        const int64_t row = n / s->len_kv;
        const int keeps = d->given ? e->Z[n] != 0
                                   : ref_dropout_keeps(args->dropout_seed, args->dropout_offset, row / s->len_q, row % s->len_q,
                                                       n % s->len_kv, d->probability);
        e->Z[n] = keeps ? factor : 0;
    }
    return 1;
}

/* A table, dense or in strides; *to stays NULL where there is none. */
static int read_table(double **to, int used, const void *src, const attn_layout *layout, attn_dtype natural, const int64_t size[4])
{
    attn_layout typed = *layout;
    if (!typed.dtype) typed.dtype = natural;
    if (!used) return 1;
    if (!(*to = doubles(tensor_count(size)))) return 0;
    element_gather(src, &typed, size, *to);
    return 1;
}

/* Weights of scores, and tables by distance. */
static int read_terms(expectation *e, const attn_problem *p, const attn_args *args)
{
    const attn_relative *r = &p->relative;
    const int64_t heads = p->shape.heads_q, tables = r->shared ? 1 : heads, vectors[4] = {1, heads, 1, p->shape.dim_qk};
    const int64_t table[4] = {1, p->bias_table.shared ? 1 : heads, problem_buckets(&p->bias_table), 1};
    const int64_t keys[4] = {1, tables, r->rows, p->shape.dim_qk}, values[4] = {1, tables, r->rows, p->shape.dim_v};
    const attn_layout dense = {0};
    const attn_dtype natural = e->compute;
    int64_t w[4];
    problem_w_size(p, w);
    e->numbers_of_w = tensor_count(w);
    return read_table(&e->W, w[2] > 0, args->w, &p->score.w, natural, w) &&
           read_table(&e->bias_table, p->bias_table.used, args->bias_table, &p->bias_table.table, natural, table) &&
           read_table(&e->relative_keys, r->keys, args->relative_keys, &r->keys_table, natural, keys) &&
           read_table(&e->relative_values, r->values, args->relative_values, &r->values_table, natural, values) &&
           read_table(&e->relative_u, r->u, args->relative_u, &dense, natural, vectors) &&
           read_table(&e->relative_v, r->v, args->relative_v, &dense, natural, vectors);
}

static int read_numbers(expectation *e, const attn_problem *p, const attn_args *args)
{
    const int64_t scores = tensor_count(tensor_sizes_of(p).weights);
    int ok = 1;
    if (p->bias.additive) ok &= (e->bias = doubles(scores)) != NULL;
    if (p->bias.additive || p->bias.alibi || p->bias_table.used) ok &= (e->added = doubles(scores)) != NULL;
    if (p->bias.alibi) ok &= (e->slopes = read_slopes(p, args->slopes, e->compute)) != NULL;
    if (p->bias.sink) ok &= (e->sink = read_array(args->sink, e->compute, p->shape.heads_q)) != NULL;
    if (p->score.scale_kind == ATTN_SCALE_PER_HEAD)
        ok &= (e->scale_of_head = read_array(args->scale, e->compute, p->shape.heads_q)) != NULL;
    ok &= read_terms(e, p, args);
    if (ok && e->bias) element_gather(args->bias, &p->bias.bias, tensor_sizes_of(p).weights, e->bias);
    return ok;
}

static void read_tokens(const void *src, const attn_layout *layout, const int64_t size[4], const int64_t *begin, double *dst)
{
    if (begin) element_gather_packed(src, layout, size, begin, dst);
    else element_gather(src, layout, size, dst);
}

/* Whole numbers become what they stand for.  Their scales, which are the caller's to free; NULL where memory is out. */
static double *apply_scales(const expectation *e, const void *src, const attn_layout *layout, const attn_shape *s, int64_t dim,
                            double *rows)
{
    const int64_t size[4] = {s->batch, s->heads_kv, s->len_kv, 1};
    const attn_layout scales = {ATTN_F32, {layout->stride[0], layout->stride[1], layout->stride[2], layout->stride[3]}};
    double *scale = doubles(tensor_count(size));
    if (!scale) return NULL;
    read_tokens(src, &scales, size, e->begin_kv, scale);
    ref_dequantise(tensor_count(size), dim, rows, scale, rows);
    return scale;
}

static ref_problem reference_of(const expectation *e, const attn_problem *p)
{
    static const ref_kind kinds[] = {
        [ATTN_SCORE_DOT] = REF_DOT,       [ATTN_SCORE_GENERAL] = REF_GENERAL,   [ATTN_SCORE_METRIC] = REF_METRIC,
        [ATTN_SCORE_COSINE] = REF_COSINE, [ATTN_SCORE_DISTANCE] = REF_DISTANCE, [ATTN_SCORE_ADDITIVE] = REF_ADDITIVE};
    const attn_bias_table *table = &p->bias_table;
    int64_t w[4];
    problem_w_size(p, w);
    return (ref_problem){.B = p->shape.batch,
                         .Hq = p->shape.heads_q,
                         .Hkv = p->shape.heads_kv,
                         .Sq = p->shape.len_q,
                         .Skv = p->shape.len_kv,
                         .D = p->shape.dim_qk,
                         .Dv = p->shape.dim_v,
                         .Q = e->Q,
                         .K = e->K,
                         .V = e->V,
                         .kind = kinds[p->score.kind],
                         .scale = p->score.scale,
                         .normaliser = (ref_normaliser)p->score.normaliser,
                         .shift = p->score.shift,
                         .Dk = p->score.dim_k,
                         .R = w[2],
                         .W = e->W,
                         .W_of_each_head = p->score.w_heads,
                         .relative_keys = e->relative_keys,
                         .relative_values = e->relative_values,
                         .relative_u = e->relative_u,
                         .relative_v = e->relative_v,
                         .relative_first = p->relative.first,
                         .relative_rows = p->relative.rows,
                         .relative_of_each_head = !p->relative.shared,
                         .bias_table = e->bias_table,
                         .bucket_rule = table->kind == ATTN_DISTANCE_CLIPPED ? REF_CLIPPED
                                        : table->causal                      ? REF_T5_CAUSAL
                                                                             : REF_T5,
                         .buckets = table->used ? problem_buckets(table) : 0,
                         .reach = table->max_distance || table->kind == ATTN_DISTANCE_CLIPPED ? table->max_distance : 128,
                         .bias_table_of_each_head = !table->shared,
                         .causal = p->mask.causal,
                         .global_q = p->mask.global_q,
                         .global_kv = p->mask.global_kv,
                         .window = p->mask.window,
                         .window_left = p->mask.window_left,
                         .window_right = p->mask.window_right,
                         .offset = e->offset,
                         .len_q = e->len_q,
                         .len_kv = e->len_kv,
                         .chunk = p->mask.chunk,
                         .keep = e->keep,
                         .bias = e->bias,
                         .scale_of_head = e->scale_of_head,
                         .temperature = p->score.temperature,
                         .softcap = p->score.softcap,
                         .slopes = e->slopes,
                         .sink = e->sink,
                         .Z = e->Z,
                         .uniform = p->mask.empty != ATTN_EMPTY_UNIFORM ? 0
                                    : p->mask.packed                    ? REF_UNIFORM_OWN
                                                                        : REF_UNIFORM_ALL};
}

int expectation_create(expectation *e, const attn_problem *problem, const attn_args *args)
{
    const attn_problem p = problem_resolve(problem);
    const tensor_sizes sizes = tensor_sizes_of(&p);
    const int64_t scores = tensor_count(sizes.weights);
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
    e->sum_k = doubles(p.shape.batch * p.shape.heads_kv * p.shape.len_kv);
    int ok = e->Q && e->K && e->V && e->O && e->lse && e->S && e->P && e->dot && e->sum_qk && e->sum_k;
    ok = ok && read_lengths(e, &p, args) && read_masks(e, &p, args) && read_dropout(e, &p, args) && read_numbers(e, &p, args);
    if (!ok) {
        expectation_destroy(e);
        return 0;
    }
    read_tokens(args->q, &p.q, sizes.q, e->begin_q, e->Q);
    read_tokens(args->k, &p.k, sizes.k, e->begin_kv, e->K);
    read_tokens(args->v, &p.v, sizes.v, e->begin_kv, e->V);
    e->whole = p.k.dtype == ATTN_I8 || p.v.dtype == ATTN_I8;
    e->bf16 = p.q.dtype == ATTN_BF16 && p.k.dtype == ATTN_BF16;
    if (p.k.dtype == ATTN_I8) {
        double *scale = apply_scales(e, args->k_scale, &p.quantised.k_scale, &p.shape, problem_dim_k(&p), e->K);
        ok = scale != NULL;
        free(scale);
    }
    if (p.v.dtype == ATTN_I8) {
        e->v_scale = apply_scales(e, args->v_scale, &p.quantised.v_scale, &p.shape, p.shape.dim_v, e->V);
        ok = ok && e->v_scale;
    }
    if (!ok) {
        expectation_destroy(e);
        return 0;
    }
    e->ref = reference_of(e, &p);
    if (!ref_sizes_make(&e->sizes, &e->ref)) {
        expectation_destroy(e);
        return 0;
    }
    ref_forward(&e->ref, e->O, e->lse, e->S, e->P);
    sum_products(e);
    if (e->added) sum_added(e);
    return 1;
}

void expectation_destroy(expectation *e)
{
    void *memory[] = {e->Q,
                      e->K,
                      e->V,
                      e->bias,
                      e->keep,
                      e->offset,
                      e->len_q,
                      e->len_kv,
                      e->O,
                      e->lse,
                      e->S,
                      e->P,
                      e->sum_qk,
                      e->dot,
                      e->sum_k,
                      e->added,
                      e->slopes,
                      e->sink,
                      e->scale_of_head,
                      e->Z,
                      e->begin_q,
                      e->begin_kv,
                      e->W,
                      e->v_scale,
                      e->bias_table,
                      e->relative_keys,
                      e->relative_values,
                      e->relative_u,
                      e->relative_v};
    ref_sizes_free(&e->sizes);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
    *e = (expectation){0};
}
