/* SPDX-License-Identifier: MIT
 * expect.c - runs the reference over the data of a call, whatever its types and strides. */
#include "expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing/memory/format.h"
#include "testing/problem/problem.h"

int64_t tensor_count(const int64_t size[4]) { return size[0] * size[1] * size[2] * size[3]; }

double expected_scale(const attn_problem *p)
{
    if (p->score.scale_kind != ATTN_SCALE_DEFAULT) return p->score.scale;
    return p->score.kind == ATTN_SCORE_DOT && p->shape.dim_qk > 0 ? 1 / sqrt((double)p->shape.dim_qk) : 1;
}

/* NULL only if out of memory, even for n = 0. */
static double *doubles(int64_t n) { return calloc((size_t)n + 1, sizeof(double)); }

/* sum_c |r_c| of the largest row of relative keys. */
static double largest_row(const expectation *e)
{
    const ref_problem *r = &e->ref;
    double most = 0;
    for (int64_t t = 0; e->ref.relative_keys && t < (r->relative_of_each_head ? r->Hq : 1) * r->relative_rows; t++) {
        double sum = 0;
        for (int64_t c = 0; c < r->D; c++) sum += fabs(e->ref.relative_keys[t * r->D + c]);
        most = fmax(most, sum);
    }
    return most;
}

/* Fills dot and sum_qk for visible pairs, and sum_k for keys. */
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
    const double rows = largest_row(e), *w = r->W;
    for (int64_t j = 0; j < r->B * r->Hkv * r->Skv; j++) {
        const double *k = r->K + j * D;
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

/* Fills `added`: the terms added to the scores, in absolute values. */
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
                    if (r->bias) e->added[at] = fabs(r->bias[at]);
                    if (r->slopes) e->added[at] += fabs(r->slopes[b * r->Hq + h]) * distance;
                    if (r->bias_table) e->added[at] += fabs(r->bias_table[place_in_table(r, b, h, i, j)]);
                }
}

/* ---- inputs ---- */

/* Integers; NULL: the tensor is absent, or out of memory, and then *ok becomes 0. */
static int64_t *read_index(const expectation *e, int t, int64_t n, int *ok)
{
    int64_t *values = e->in[t] ? calloc((size_t)n + 1, sizeof *values) : NULL;
    for (int64_t i = 0; values && i < n; i++) values[i] = (int64_t)e->in[t][i];
    *ok &= values || !e->in[t];
    return values;
}

/* Lengths from the offsets of sequences. */
static int64_t *lengths_of(const int64_t *begin, int64_t B, int *ok)
{
    int64_t *length = calloc((size_t)B + 1, sizeof *length);
    *ok &= length != NULL;
    for (int64_t b = 0; length && b < B; b++) length[b] = begin[b + 1] - begin[b];
    return length;
}

/* The shape to read: a table that heads share is read once. */
static void shape_read(const attn_problem *p, const attn_tensors *all, int t, int64_t shape[4])
{
    if (tensors_about(t)->axes[0] == ATTN_AXIS_ONE) tensors_extent(p, all, t, shape);
    else tensors_shape(p, all, t, shape);
}

/* The words of a tree, which doubles do not hold; those of absent queries of packed sequences are 0. */
static int read_tree(expectation *e, const attn_problem *p, const attn_tensors *all)
{
    const int64_t words = problem_blocks(p->mask.tree_keys, 64), Sq = p->shape.len_q;
    int64_t stride[4];
    if (!all->tree.data) return 1;
    if (!(e->tree = calloc((size_t)(p->shape.batch * Sq * words) + 1, sizeof *e->tree))) return 0;
    tensors_strides(p, all, TENSOR(tree), stride);
    for (int64_t b = 0; b < p->shape.batch; b++)
        for (int64_t i = 0; i < Sq; i++) {
            if (e->begin_q && e->begin_q[b] + i >= e->begin_q[b + 1]) break;
            const uint64_t *row =
                (const uint64_t *)all->tree.data + (e->begin_q ? e->begin_q[b] * stride[2] : b * stride[0]) + i * stride[2];
            memcpy(e->tree + (b * Sq + i) * words, row, (size_t)words * sizeof *row);
        }
    return 1;
}

static int read_input(expectation *e, const attn_problem *p, const attn_tensors *all, int t)
{
    int64_t shape[4];
    if (e->in[t] || t == TENSOR(tree) || !tensors_reads(all, ATTN_FORWARD, t)) return 1;
    shape_read(p, all, t, shape);
    if (!(e->in[t] = doubles(tensor_count(shape)))) return 0;
    tensors_read(p, all, t, shape, !tensors_packs(t) ? NULL : tensors_of_keys(t) ? e->begin_kv : e->begin_q, e->in[t]);
    return 1;
}

static int read_all(expectation *e, const attn_problem *p, const attn_tensors *all)
{
    const int64_t B = p->shape.batch;
    int ok = read_input(e, p, all, TENSOR(cu_seqlens_q)) && read_input(e, p, all, TENSOR(cu_seqlens_kv));
    if (!ok) return 0;
    e->begin_q = read_index(e, TENSOR(cu_seqlens_q), B + 1, &ok);
    e->begin_kv = read_index(e, TENSOR(cu_seqlens_kv), B + 1, &ok);
    for (int t = 0; t < TENSORS && ok; t++) ok = read_input(e, p, all, t);
    if (!ok || !read_tree(e, p, all)) return 0;
    e->len_q = e->begin_q ? lengths_of(e->begin_q, B, &ok) : read_index(e, TENSOR(lengths_q), B, &ok);
    e->len_kv = e->begin_kv ? lengths_of(e->begin_kv, B, &ok) : read_index(e, TENSOR(lengths_kv), B, &ok);
    e->offset = read_index(e, TENSOR(offset_q), B, &ok);
    if (p->mask.align != ATTN_ALIGN_BOTTOM_RIGHT) return ok;
    ok &= (e->offset = calloc((size_t)B + 1, sizeof *e->offset)) != NULL;
    for (int64_t b = 0; ok && b < B; b++)
        e->offset[b] = (e->len_kv ? e->len_kv[b] : p->shape.len_kv) - (e->len_q ? e->len_q[b] : p->shape.len_q);
    return ok;
}

static int64_t pairs_of(const attn_shape *s) { return s->batch * s->heads_q * s->len_q * s->len_kv; }

/* Clears `keep` where the mask is 0; an element of the mask covers block_q queries and block_kv keys. */
static void apply_mask(expectation *e, const attn_shape *s, const double *mask, int64_t block_q, int64_t block_kv)
{
    const int64_t queries = problem_blocks(s->len_q, block_q), keys = problem_blocks(s->len_kv, block_kv);
    for (int64_t row = 0; mask && row < s->batch * s->heads_q * s->len_q; row++)
        for (int64_t j = 0; j < s->len_kv; j++) {
            const int64_t head = row / s->len_q, i = row % s->len_q;
            if (mask[(head * queries + i / block_q) * keys + j / block_kv] == 0) e->keep[row * s->len_kv + j] = 0;
        }
}

/* Clears `keep` where a pattern hides a key; positions are those that causal masks and windows have. */
static void apply_patterns(expectation *e, const attn_shape *s, const expected_patterns *patterns)
{
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t i = 0; i < s->len_q; i++)
            for (int64_t j = 0; j < s->len_kv; j++) {
                const int64_t position = i + (e->offset ? e->offset[b] : 0);
                int shows = 1;
                for (int n = 0; n < patterns->count; n++) shows &= ref_pattern_shows(&patterns->list[n], s->len_kv, i, j, position);
                for (int64_t h = 0; h < s->heads_q && !shows; h++)
                    e->keep[((b * s->heads_q + h) * s->len_q + i) * s->len_kv + j] = 0;
            }
}

static int make_masks(expectation *e, const attn_problem *p, const expected_patterns *patterns)
{
    const double *mask = e->in[TENSOR(mask)], *blocks = e->in[TENSOR(block_mask)];
    if (!mask && !blocks && !patterns) return 1;
    if (!(e->keep = malloc((size_t)pairs_of(&p->shape) + 1))) return 0;
    memset(e->keep, 1, (size_t)pairs_of(&p->shape));
    apply_mask(e, &p->shape, mask, 1, 1);
    apply_mask(e, &p->shape, blocks, p->mask.block_q, p->mask.block_kv);
    if (patterns) apply_patterns(e, &p->shape, patterns);
    return 1;
}

static int make_dropout(expectation *e, const attn_problem *p, const attn_call *call)
{
    static const attn_call none = {0};
    const attn_shape *s = &p->shape;
    const attn_dropout *d = &p->dropout;
    const double factor = d->probability < 1 ? 1 / (1 - d->probability) : 0, *given = e->in[TENSOR(dropout_given)];
    if (!call) call = &none;
    if (d->probability == 0 && !given) return 1;
    if (!(e->Z = doubles(pairs_of(s)))) return 0;
    for (int64_t n = 0; n < pairs_of(s); n++) {
        const int64_t row = n / s->len_kv;
        const int keeps = given ? given[n] != 0
                                : ref_dropout_keeps(call->dropout_seed, call->dropout_offset, row / s->len_q, row % s->len_q,
                                                    n % s->len_kv, d->probability);
        e->Z[n] = keeps ? factor : 0;
    }
    return 1;
}

/* Multiplies the rows of keys or values by their scales. */
static void apply_scales(const expectation *e, const attn_shape *s, int t, int of_scales, int64_t dim)
{
    if (e->in[of_scales]) ref_dequantise(s->batch * s->heads_kv * s->len_kv, dim, e->in[t], e->in[of_scales], e->in[t]);
}

/* Without heads, no table can be shared: its tensor has no elements. */
static int is_per_head(const attn_problem *p, const attn_tensors *all, int t)
{
    return p->shape.heads_q == 0 || !tensors_broadcasts(all, t, 1);
}

static ref_problem reference_of(const expectation *e, const attn_problem *p, const attn_tensors *all)
{
    static const ref_kind kinds[] = {
        [ATTN_SCORE_DOT] = REF_DOT,       [ATTN_SCORE_GENERAL] = REF_GENERAL,   [ATTN_SCORE_METRIC] = REF_METRIC,
        [ATTN_SCORE_COSINE] = REF_COSINE, [ATTN_SCORE_DISTANCE] = REF_DISTANCE, [ATTN_SCORE_ADDITIVE] = REF_ADDITIVE};
    const attn_bias_table *table = &p->bias_table;
    const int relative = all->relative_keys.data ? TENSOR(relative_keys) : TENSOR(relative_values);
    double *const *in = e->in;
    int64_t w[2];
    problem_matrix_size(p, w);
    return (ref_problem){.B = p->shape.batch,
                         .Hq = p->shape.heads_q,
                         .Hkv = p->shape.heads_kv,
                         .Sq = p->shape.len_q,
                         .Skv = p->shape.len_kv,
                         .D = p->shape.dim_qk,
                         .Dv = p->shape.dim_v,
                         .Q = in[TENSOR(q)],
                         .K = in[TENSOR(k)],
                         .V = in[TENSOR(v)],
                         .kind = kinds[p->score.kind],
                         .scale = expected_scale(p),
                         .normaliser = (ref_normaliser)p->score.normaliser,
                         .shift = p->score.shift,
                         .Dk = p->score.dim_k,
                         .R = w[0],
                         .W = in[TENSOR(score_matrix)],
                         .W_of_each_head = is_per_head(p, all, TENSOR(score_matrix)),
                         .relative_keys = in[TENSOR(relative_keys)],
                         .relative_values = in[TENSOR(relative_values)],
                         .relative_u = in[TENSOR(relative_u)],
                         .relative_v = in[TENSOR(relative_v)],
                         .relative_first = p->relative.first,
                         .relative_rows = p->relative.rows,
                         .relative_of_each_head = is_per_head(p, all, relative),
                         .bias_table = in[TENSOR(bias_table)],
                         .bucket_rule = table->kind == ATTN_DISTANCE_CLIPPED ? REF_CLIPPED
                                        : table->causal                      ? REF_T5_CAUSAL
                                                                             : REF_T5,
                         .buckets = in[TENSOR(bias_table)] ? problem_buckets(table) : 0,
                         .reach = table->max_distance || table->kind == ATTN_DISTANCE_CLIPPED ? table->max_distance : 128,
                         .bias_table_of_each_head = is_per_head(p, all, TENSOR(bias_table)),
                         .causal = p->mask.causal,
                         .global_q = p->mask.global_q,
                         .global_kv = p->mask.global_kv,
                         .window = p->mask.window,
                         .window_left = p->mask.window_left,
                         .window_right = p->mask.window_right,
                         .tree = e->tree,
                         .tree_keys = p->mask.tree_keys,
                         .offset = e->offset,
                         .len_q = e->len_q,
                         .len_kv = e->len_kv,
                         .chunk = p->mask.chunk,
                         .keep = e->keep,
                         .bias = in[TENSOR(bias)],
                         .scale_of_head = in[TENSOR(scale)],
                         .temperature = p->score.temperature,
                         .softcap = p->score.softcap,
                         .slopes = in[TENSOR(alibi_slopes)],
                         .sink = in[TENSOR(sink)],
                         .Z = e->Z,
                         .uniform = p->mask.empty != ATTN_EMPTY_UNIFORM ? 0
                                    : e->begin_kv                       ? REF_UNIFORM_OWN
                                                                        : REF_UNIFORM_ALL};
}

static int create(expectation *e, const attn_problem *p, const attn_tensors *all, const expected_patterns *patterns)
{
    const attn_shape *s = &p->shape;
    const int64_t rows = s->batch * s->heads_q * s->len_q, pairs = pairs_of(s);
    int64_t w[4] = {0};
    e->O = doubles(rows * s->dim_v);
    e->lse = doubles(rows);
    e->S = doubles(pairs);
    e->P = doubles(pairs);
    e->dot = doubles(pairs);
    e->sum_qk = doubles(pairs);
    e->sum_k = doubles(s->batch * s->heads_kv * s->len_kv);
    if (!(e->O && e->lse && e->S && e->P && e->dot && e->sum_qk && e->sum_k)) return 0;
    if (!read_all(e, p, all) || !make_masks(e, p, patterns) || !make_dropout(e, p, all->call)) return 0;
    if (e->in[TENSOR(bias)] || e->in[TENSOR(alibi_slopes)] || e->in[TENSOR(bias_table)])
        if (!(e->added = doubles(pairs))) return 0;
    if (e->in[TENSOR(score_matrix)]) tensors_extent(p, all, TENSOR(score_matrix), w);
    e->numbers_of_w = tensor_count(w);
    e->scaled = all->k_scale.data || all->v_scale.data;
    e->fixed_keys = all->k.dtype == ATTN_I8 || format_is_blocks(all->k.dtype);
    e->fixed_values = all->v.dtype == ATTN_I8;
    e->bf16 = all->q.dtype == ATTN_BF16 && tensors_dtype(all, TENSOR(k)) == ATTN_BF16;
    apply_scales(e, s, TENSOR(k), TENSOR(k_scale), problem_dim_k(p));
    apply_scales(e, s, TENSOR(v), TENSOR(v_scale), s->dim_v);
    e->ref = reference_of(e, p, all);
    return ref_sizes_make(&e->sizes, &e->ref);
}

int expectation_create(expectation *e, const attn_problem *problem, const attn_tensors *tensors, const expected_patterns *patterns)
{
    *e = (expectation){.compute = tensors_compute(tensors)};
    if (!create(e, problem, tensors, patterns)) {
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
    void *memory[] = {e->tree, e->keep, e->Z, e->offset, e->len_q, e->len_kv, e->begin_q, e->begin_kv,
                      e->O,    e->lse,  e->S, e->P,      e->added, e->dot,    e->sum_qk,  e->sum_k};
    ref_sizes_free(&e->sizes);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) free(memory[i]);
    for (int t = 0; t < TENSORS; t++) free(e->in[t]);
    *e = (expectation){0};
}
