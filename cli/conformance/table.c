/* SPDX-License-Identifier: MIT
 * table.c - see table.h. */
#include "table.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/analysis.h"
#include "attn/mask.h"
#include "attn/position.h"

typedef struct table_case {
    evaluation *result;
    view_pool pool;
    const cJSON *params;
    const attn_tensors *tensors;
    double rtol, atol;
} table_case;

__attribute__((format(printf, 3, 4))) static void conclude(table_case *c, check_status status, const char *format, ...)
{
    va_list list;
    if (c->result->status != CHECK_PASSED) return;
    va_start(list, format);
    vsnprintf(c->result->reason, sizeof c->result->reason, format, list);
    va_end(list);
    c->result->status = status;
}

static double param(const table_case *c, const char *name, double otherwise)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(c->params, name);
    return cJSON_IsNumber(value) ? value->valuedouble : otherwise;
}

/* A tensor that the case must have; rank 0 after the case has failed without it. */
static view need(table_case *c, const char *name)
{
    view v = view_of(attn_tensors_find(c->tensors, name));
    if (!view_given(&v)) conclude(c, CHECK_FAILED, "tensor %s is missing", name);
    return v;
}

/* Numbers as doubles, in the pool's memory. */
static double *doubles(table_case *c, const view *v)
{
    const int64_t n = view_count(v);
    double *x = pool_take(&c->pool, n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = view_get(v, i);
    return x;
}

static int64_t *wholes(table_case *c, const view *v)
{
    const int64_t n = view_count(v);
    int64_t *x = pool_take(&c->pool, n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = (int64_t)view_get(v, i);
    return x;
}

static void take(table_case *c, attn_status status, const attn_error *error)
{
    if (status != ATTN_OK) conclude(c, CHECK_FAILED, "refused: %.200s", error->message);
}

/* What the library made against tensor `name`, in the order of its elements. */
static void compare(table_case *c, const char *name, const double *got, int64_t count)
{
    const view want = need(c, name);
    if (!view_given(&want)) return;
    if (view_count(&want) != count) {
        conclude(c, CHECK_FAILED, "%s has %lld elements and not %lld", name, (long long)view_count(&want), (long long)count);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        const double x = view_get(&want, i), off = fabs(got[i] - x);
        if (got[i] == x) continue; /* infinities too */
        if (!(off <= c->result->max_error)) c->result->max_error = off;
        if (!(off <= c->atol + c->rtol * fabs(x)))
            conclude(c, CHECK_FAILED, "%s: element %lld is %.9g, expected %.9g", name, (long long)i, got[i], x);
    }
}

/* ---- positions ---- */

/*
 * ONNX: X [batch, head, token, channel] or [batch, token, head * channel], turned by the rows of two caches that position_ids
 * names: one for each token, one that the others follow, or none, where the caches have a row for each token.
 */
static void rotary_caches(table_case *c, const char *name_of_x, const char *name_of_y)
{
    view x = need(c, name_of_x), cosines = need(c, "in.cos_cache"), sines = need(c, "in.sin_cache");
    const view ids = view_of(attn_tensors_find(c->tensors, "in.position_ids"));
    if ((x.rank != 3 && x.rank != 4) || cosines.rank < 2 || view_count(&cosines) != view_count(&sines)) {
        conclude(c, CHECK_FAILED, "X has rank %d and the caches do not fit", x.rank);
        return;
    }
    const int64_t pairs = cosines.size[cosines.rank - 1], rotary_dim = (int64_t)param(c, "rotary_embedding_dim", 0);
    const int64_t width = x.size[x.rank - 1], heads = x.rank == 4                    ? x.size[1]
                                                      : param(c, "num_heads", 0) > 0 ? (int64_t)param(c, "num_heads", 0)
                                                                                     : width / (2 * pairs);
    const int64_t batch = x.size[0], tokens = x.rank == 4 ? x.size[2] : x.size[1], dim = x.rank == 4 ? width : width / heads;
    const int64_t shape[4] = {batch, heads, tokens, dim}, count = view_count(&x);
    const attn_layout layout = {ATTN_F64,
                                {heads * tokens * dim, x.rank == 4 ? tokens * dim : dim, x.rank == 4 ? dim : heads * dim, 1}};
    int64_t *positions = pool_take(&c->pool, batch * tokens, sizeof *positions);
    for (int64_t n = 0; n < batch * tokens; n++)
        positions[n] = !view_given(&ids)                    ? n
                       : view_count(&ids) == batch * tokens ? (int64_t)view_get(&ids, n)
                                                            : (int64_t)view_get(&ids, 0) + n % tokens;
    const attn_rope rope = {.struct_size = sizeof rope,
                            .pairs = param(c, "interleaved", 0) > 0 ? ATTN_ROPE_INTERLEAVED : ATTN_ROPE_HALVES,
                            .dim_rotary = rotary_dim > 0 ? rotary_dim : 2 * pairs,
                            .cosines = doubles(c, &cosines),
                            .sines = doubles(c, &sines),
                            .table_rows = view_count(&cosines) / pairs};
    double *y = doubles(c, &x);
    attn_error error;
    take(c, attn_rope_apply(&rope, shape, &layout, y, &layout, y, positions, &error), &error);
    compare(c, name_of_y, y, count);
}

static void rotary_onnx(table_case *c) { rotary_caches(c, "in.X", "out.Y"); }
static void rotary_ort(table_case *c) { rotary_caches(c, "in.input", "out.output"); }

/* x of [..., token, channel], turned at positions that rise by 1 from the first that params name. */
static void rotary(table_case *c, attn_rope_pairs pairs)
{
    view x = need(c, "in.x");
    if (x.rank < 2) return;
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(c->params, "positions");
    const int64_t first = cJSON_IsString(text) ? strtoll(text->valuestring, NULL, 10) : 0;
    x = view_to_rank(&c->pool, &x, 4);
    const int64_t shape[4] = {x.size[0], x.size[1], x.size[2], x.size[3]}, count = view_count(&x);
    int64_t *positions = pool_take(&c->pool, shape[0] * shape[2], sizeof *positions);
    for (int64_t n = 0; n < shape[0] * shape[2]; n++) positions[n] = first + n % shape[2];
    const attn_rope rope = {.struct_size = sizeof rope, .pairs = pairs, .base = param(c, "base", 0)};
    const attn_layout dense = {ATTN_F64, {0, 0, 0, 0}};
    double *y = doubles(c, &x);
    attn_error error;
    take(c, attn_rope_apply(&rope, shape, &dense, y, &dense, y, positions, &error), &error);
    compare(c, "out.output", y, count);
}

static void rotary_interleaved(table_case *c) { rotary(c, ATTN_ROPE_INTERLEAVED); }
static void rotary_halves(table_case *c) { rotary(c, ATTN_ROPE_HALVES); }

static double *frequencies(table_case *c, attn_rope_stretching kind, const char *dim, const char *base, const char *length)
{
    attn_error error;
    const attn_rope_scaling s = {.struct_size = sizeof s,
                                 .kind = kind,
                                 .dim = (int64_t)param(c, dim, 0),
                                 .base = param(c, base, 0),
                                 .factor = param(c, "factor", 1),
                                 .original_length = (int64_t)param(c, length, 0),
                                 .length = (int64_t)param(c, "seq_len", 0),
                                 .fast = param(c, "beta_fast", param(c, "high_freq_factor", 0)),
                                 .slow = param(c, "beta_slow", param(c, "low_freq_factor", 0))};
    double *f = pool_take(&c->pool, s.dim / 2 + 1, sizeof *f);
    take(c, attn_rope_frequencies(&s, f, NULL, &error), &error);
    return f;
}

static void stretched(table_case *c, attn_rope_stretching kind)
{
    const double *f = frequencies(c, kind, "head_dim", "rope_theta", "max_position_embeddings");
    compare(c, "out.inv_freq", f, (int64_t)param(c, "head_dim", 0) / 2);
}

static void stretched_ntk(table_case *c) { stretched(c, ATTN_ROPE_NTK_DYNAMIC); }
static void stretched_yarn(table_case *c) { stretched(c, ATTN_ROPE_YARN); }

/* [position][pair][cos, sin] */
static void llama3_table(table_case *c)
{
    const view at = need(c, "in.positions");
    if (!view_given(&at)) return;
    const double *f = frequencies(c, ATTN_ROPE_LLAMA3, "dim", "theta", "old_context_len");
    const int64_t pairs = (int64_t)param(c, "dim", 0) / 2, tokens = view_count(&at);
    double *got = pool_take(&c->pool, 2 * pairs * tokens, sizeof *got);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t i = 0; i < pairs; i++) {
            got[(t * pairs + i) * 2] = cos(view_get(&at, t) * f[i]);
            got[(t * pairs + i) * 2 + 1] = sin(view_get(&at, t) * f[i]);
        }
    compare(c, "out.cos_sin", got, 2 * pairs * tokens);
}

/* Scores [batch, head, query, key] with -slope (keys - 1 - key) added: what a query at the end of the keys has. */
static void alibi_keys(table_case *c)
{
    const view scores = need(c, "in.scores");
    if (scores.rank != 4) return;
    const int64_t heads = scores.size[1], queries = scores.size[2], keys = scores.size[3], count = view_count(&scores);
    double *got = doubles(c, &scores), *slopes = pool_take(&c->pool, heads, sizeof *slopes);
    attn_error error;
    take(c, attn_alibi_slopes(heads, ATTN_F64, slopes, &error), &error);
    for (int64_t n = 0; n < count; n++) got[n] -= slopes[n / keys / queries % heads] * (double)(keys - 1 - n % keys);
    compare(c, "out.output", got, count);
}

/* Their relative position is that of the key less that of the query. */
static void t5_buckets(table_case *c)
{
    const view at = need(c, "in.relative_position");
    if (!view_given(&at)) return;
    const attn_distance_bias rule = {.struct_size = sizeof rule,
                                     .buckets = (int64_t)param(c, "num_buckets", 0),
                                     .max_distance = (int64_t)param(c, "max_distance", 0),
                                     .causal = cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(c->params, "bidirectional"))};
    double *got = doubles(c, &at);
    for (int64_t n = 0; n < view_count(&at); n++) got[n] = (double)attn_distance_bucket(&rule, -(int64_t)got[n]);
    compare(c, "out.bucket", got, view_count(&at));
}

/* ---- a softmax alone, along `axis`, which counts from the end where it is negative ---- */

static void softmax(table_case *c, int logarithm)
{
    const view x = need(c, "in.input");
    const int axis = (int)param(c, "axis", -1) + (param(c, "axis", -1) < 0 ? x.rank : 0);
    if (!view_given(&x) || axis < 0 || axis >= x.rank) {
        conclude(c, CHECK_FAILED, "axis %d of rank %d", axis, x.rank);
        return;
    }
    const int64_t n = x.size[axis], count = view_count(&x);
    int64_t step = 1; /* from one element along the axis to the next */
    for (int k = axis + 1; k < x.rank; k++) step *= x.size[k];
    double *got = doubles(c, &x), *row = pool_take(&c->pool, n, sizeof *row);
    for (int64_t first = 0; first < count; first++) {
        if (first / step % n != 0) continue;
        attn_error error;
        for (int64_t j = 0; j < n; j++) row[j] = got[first + j * step];
        take(c, logarithm ? attn_log_softmax(row, NULL, n, 1, row, &error) : attn_softmax(row, NULL, n, 1, row, NULL, &error),
             &error);
        for (int64_t j = 0; j < n; j++) got[first + j * step] = row[j];
    }
    compare(c, "out.output", got, count);
}

static void softmax_alone(table_case *c) { softmax(c, 0); }
static void log_softmax_alone(table_case *c) { softmax(c, 1); }

/* ---- masks ---- */

/* got[i][j] of a matrix whose rows are `stride` apart = 1 where all patterns keep. */
static void fill(table_case *c, const attn_pattern *patterns, int64_t count, int64_t len_q, int64_t len_kv, double *got,
                 int64_t stride)
{
    attn_pattern_set *set;
    attn_error error;
    attn_status status = attn_pattern_set_create(&set, patterns, count, len_q, len_kv, &error);
    take(c, status, &error);
    for (int64_t i = 0; i < len_q && status == ATTN_OK; i++)
        for (int64_t j = 0; j < len_kv; j++) got[i * stride + j] = attn_pattern_set_sees(set, i, j);
    attn_pattern_set_destroy(set);
}

static void block_diagonal(table_case *c)
{
    const view q = need(c, "in.q_lengths"), k = need(c, "in.k_lengths");
    if (!view_given(&q) || !view_given(&k)) return;
    const int64_t *of_q = wholes(c, &q), *of_k = wholes(c, &k);
    int64_t len_q = 0, len_kv = 0;
    for (int64_t d = 0; d < view_count(&q); d++) len_q += of_q[d], len_kv += of_k[d];
    const attn_pattern documents = attn_pattern_documents(of_q, of_k, view_count(&q));
    double *got = pool_take(&c->pool, len_q * len_kv, sizeof *got);
    fill(c, &documents, 1, len_q, len_kv, got, len_kv);
    compare(c, "out.mask", got, len_q * len_kv);
    if (!attn_tensors_find(c->tensors, "out.mask_causal_topleft")) return;
    const attn_pattern causal = attn_pattern_causal(); /* within each document, from its own first query and key */
    for (int64_t d = 0, i = 0, j = 0; d < view_count(&q); i += of_q[d], j += of_k[d], d++)
        fill(c, &causal, 1, of_q[d], of_k[d], got + i * len_kv + j, len_kv);
    compare(c, "out.mask_causal_topleft", got, len_q * len_kv);
}

static void padding(table_case *c)
{
    const view lengths = need(c, "in.lengths"), mask = need(c, "out.mask");
    if (mask.rank != 2 || !view_given(&lengths)) return;
    double *got = pool_take(&c->pool, view_count(&mask), sizeof *got);
    for (int64_t b = 0; b < mask.size[0]; b++) {
        const attn_pattern pattern = attn_pattern_lengths(1, (int64_t)view_get(&lengths, b));
        fill(c, &pattern, 1, 1, mask.size[1], got + b * mask.size[1], mask.size[1]);
    }
    compare(c, "out.mask", got, view_count(&mask));
}

/* Causal chunks that are counted from the first real token of each entry; all queries, or the last one over the last keys. */
static void chunked(table_case *c)
{
    const view real = need(c, "in.attention_mask"), mask = need(c, "out.mask");
    if (real.rank != 2 || mask.rank != 4) return;
    const attn_pattern patterns[] = {attn_pattern_causal(), attn_pattern_block_diagonal((int64_t)param(c, "chunk_size", 1))};
    const int64_t tokens = real.size[1], queries = mask.size[2], keys = mask.size[3];
    double *got = pool_take(&c->pool, view_count(&mask), sizeof *got), *all = pool_take(&c->pool, tokens * tokens, sizeof *all);
    for (int64_t b = 0; b < real.size[0]; b++) {
        int64_t first = 0;
        while (first < tokens && !(view_get(&real, b * tokens + first) > 0)) first++;
        for (int64_t n = 0; n < tokens * tokens; n++) all[n] = 0;
        fill(c, patterns, 2, tokens - first, tokens - first, all + first * tokens + first, tokens);
        for (int64_t i = 0; i < queries; i++)
            for (int64_t j = 0; j < keys; j++)
                got[(b * queries + i) * keys + j] = all[(tokens - queries + i) * tokens + tokens - keys + j];
    }
    compare(c, "out.mask", got, view_count(&mask));
}

/* Causality from the first flagged token on: all see those before it. */
static void prefix(table_case *c)
{
    const view flag = need(c, "in.causal_flag");
    const int64_t n = view_given(&flag) ? view_count(&flag) : 0;
    int64_t first = 0;
    while (first < n && !(view_get(&flag, first) > 0)) first++;
    const attn_pattern pattern = attn_pattern_prefix(first);
    double *got = pool_take(&c->pool, n * n, sizeof *got);
    fill(c, &pattern, 1, n, n, got, n);
    compare(c, "out.mask", got, n * n);
}

static void causal_bias(table_case *c)
{
    const view bias = need(c, "in.bias");
    if (bias.rank != 2) return;
    const attn_pattern causal = attn_pattern_causal();
    double *got = pool_take(&c->pool, view_count(&bias), sizeof *got);
    fill(c, &causal, 1, bias.size[0], bias.size[1], got, bias.size[1]);
    for (int64_t n = 0; n < view_count(&bias); n++) got[n] = got[n] > 0 ? view_get(&bias, n) : -INFINITY;
    compare(c, "out.attn_bias", got, view_count(&bias));
}

/* ---- the table ---- */

static const struct {
    const char *suite, *op; /* the words an operation begins with */
    void (*make)(table_case *);
} rows[] = {
    {"positions", "RoPE half-split", rotary_halves},
    {"positions", "RoPE interleaved", rotary_interleaved},
    {"positions", "RoPE inv_freq (dynamic_ntk)", stretched_ntk},
    {"positions", "RoPE inv_freq (yarn)", stretched_yarn},
    {"positions", "cos/sin table with Llama-3", llama3_table},
    {"positions", "ALiBi bias added to zero scores (key-position form)", alibi_keys},
    {"positions", "T5 relative position bucket", t5_buckets},
    {"onnx_attention", "Softmax", softmax_alone},
    {"onnx_attention", "LogSoftmax", log_softmax_alone},
    {"onnx_attention", "RotaryEmbedding", rotary_onnx},
    {"ort_rotary_embedding", "com.microsoft.RotaryEmbedding", rotary_ort},
    {"masks", "block-diagonal", block_diagonal},
    {"masks", "padding mask", padding},
    {"masks", "chunked causal mask", chunked},
    {"masks", "causal mask enabled only for query positions", prefix},
    {"masks", "causal + additive bias", causal_bias},
};
enum { ROWS = sizeof rows / sizeof *rows };

static int find(const char *suite, const char *op)
{
    for (int r = 0; r < ROWS; r++)
        if (strcmp(rows[r].suite, suite) == 0 && strncmp(rows[r].op, op, strlen(rows[r].op)) == 0) return r;
    return -1;
}

int table_case_is(const char *suite, const char *op) { return find(suite, op) >= 0; }

static double tolerance_in(const cJSON *tolerance, const char *name, const char *other)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(tolerance, name);
    if (!value) value = cJSON_GetObjectItemCaseSensitive(tolerance, other);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

void table_case_evaluate(evaluation *e, const char *suite, const cJSON *json, const attn_tensors *tensors)
{
    const cJSON *tolerance = cJSON_GetObjectItemCaseSensitive(json, "tolerance"),
                *op = cJSON_GetObjectItemCaseSensitive(json, "op");
    table_case c = {.result = e, .params = cJSON_GetObjectItemCaseSensitive(json, "params"), .tensors = tensors};
    if (!c.params) c.params = cJSON_GetObjectItemCaseSensitive(json, "attributes");
    c.rtol = tolerance_in(tolerance, "rtol", "rel");
    c.atol = tolerance_in(tolerance, "atol", "abs");
    rows[find(suite, op->valuestring)].make(&c);
    pool_empty(&c.pool);
}
