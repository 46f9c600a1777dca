/* SPDX-License-Identifier: MIT
 * table_score.c - cases of scores, and of softmax without attention. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn/analysis.h"
#include "table_case.h"

/* ---- softmax along `axis`, which counts from the end if negative ---- */

static void softmax(table_case *c, int logarithm)
{
    const view x = case_need(c, "in.input");
    const int axis = (int)case_param(c, "axis", -1) + (case_param(c, "axis", -1) < 0 ? x.rank : 0);
    if (!view_present(&x) || axis < 0 || axis >= x.rank) {
        conclude(c->result, CHECK_FAILED, "axis %d of rank %d", axis, x.rank);
        return;
    }
    const int64_t n = x.size[axis], count = view_count(&x);
    int64_t step = 1; /* distance of neighbours along the axis */
    for (int k = axis + 1; k < x.rank; k++) step *= x.size[k];
    double *got = case_doubles(c, &x), *row = pool_take(&c->pool, n, sizeof *row);
    for (int64_t first = 0; first < count; first++) {
        if (first / step % n != 0) continue;
        attn_error error;
        for (int64_t j = 0; j < n; j++) row[j] = got[first + j * step];
        case_take(c, logarithm ? attn_log_softmax(n, 1, row, NULL, row, &error) : attn_softmax(n, 1, row, NULL, row, NULL, &error),
                  &error);
        for (int64_t j = 0; j < n; j++) got[first + j * step] = row[j];
    }
    case_compare(c, "out.output", got, count);
}

static void softmax_case(table_case *c) { softmax(c, 0); }
static void log_softmax_case(table_case *c) { softmax(c, 1); }

/* ---- attention ---- */

void case_attention_begin(table_case *c, case_attention *x, const double *q, const double *k, const double *v)
{
    const attn_shape *s = &x->p.shape;
    const int64_t keys = s->batch * s->heads_kv * s->len_kv, dim_k = x->p.score.dim_k ? x->p.score.dim_k : s->dim_qk;
    double *ones = pool_take(&c->pool, keys * s->dim_v, sizeof *ones);
    for (int64_t n = 0; n < keys * s->dim_v; n++) ones[n] = 1;
    x->p.struct_size = sizeof x->p;
    x->a.struct_size = sizeof x->a;
    x->a.q = case_slot(c, q, s->batch * s->heads_q * s->len_q * s->dim_qk);
    x->a.k = case_slot(c, k, keys * dim_k);
    x->a.v = case_slot(c, v ? v : ones, keys * s->dim_v);
}

int case_attend(table_case *c, case_attention *x)
{
    const attn_shape *s = &x->p.shape;
    const int64_t rows = s->batch * s->heads_q * s->len_q, pairs = rows * s->len_kv;
    attn_error error;
    x->a.o = case_output(c, rows * s->dim_v);
    x->a.lse = case_output(c, rows);
    x->a.weights = case_output(c, pairs);
    x->a.scores = case_output(c, pairs);
    const attn_status status = attn_compute(&x->p, &x->a, &error);
    case_take(c, status, &error);
    if (status != ATTN_OK) return 0;
    x->o = case_taken(c, &x->a.o, rows * s->dim_v);
    x->lse = case_taken(c, &x->a.lse, rows);
    x->weights = case_taken(c, &x->a.weights, pairs);
    x->scores = case_taken(c, &x->a.scores, pairs);
    return 1;
}

/* ---- allennlp: x [batch][query][channel], or one vector of each batch entry, and y [batch][key][channel] ---- */

typedef struct vectors {
    double *x, *y;
    int64_t batch, len_x, len_y, dim_x, dim_y;
} vectors;

static int read_vectors(table_case *c, vectors *v)
{
    const view vector = case_find(c, "in.vector"), given = view_present(&vector) ? vector : case_need_rank(c, "in.x", 3);
    const view y = view_present(&vector) ? case_need_rank(c, "in.matrix", 3) : case_need_rank(c, "in.y", 3);
    if (!view_present(&given) || !view_present(&y)) return 0;
    const int single = given.rank == 2;
    *v = (vectors){.x = case_doubles(c, &given),
                   .y = case_doubles(c, &y),
                   .batch = given.size[0],
                   .len_x = single ? 1 : given.size[1],
                   .len_y = y.size[1],
                   .dim_x = given.size[given.rank - 1],
                   .dim_y = y.size[2]};
    if (y.size[0] != v->batch) conclude(c->result, CHECK_FAILED, "the batches of both tensors differ");
    return y.size[0] == v->batch;
}

/* Appends a channel of ones. */
static double *with_ones(table_case *c, const double *x, int64_t rows, int64_t dim)
{
    double *more = pool_take(&c->pool, rows * (dim + 1), sizeof *more);
    for (int64_t n = 0; n < rows * (dim + 1); n++) more[n] = n % (dim + 1) < dim ? x[n / (dim + 1) * dim + n % (dim + 1)] : 1;
    return more;
}

static void compare_scores(table_case *c, const vectors *v, case_attention *x, const double *q, const double *k)
{
    const int64_t pairs = v->batch * v->len_x * v->len_y;
    x->p.shape.batch = v->batch;
    x->p.shape.heads_q = x->p.shape.heads_kv = x->p.shape.dim_v = 1;
    x->p.shape.len_q = v->len_x;
    x->p.shape.len_kv = v->len_y;
    case_attention_begin(c, x, q, k, NULL);
    if (!case_attend(c, x)) return;
    if (case_flag(c, "normalize")) case_compare(c, "out.probs", x->weights, pairs);
    else case_compare(c, "out.scores", x->scores, pairs);
}

static void score_kind(table_case *c, attn_score_kind kind)
{
    vectors v;
    double width;
    if (!read_vectors(c, &v)) return;
    case_attention x = {.p.shape.dim_qk = v.dim_x, .p.score = {.kind = kind, .scale_kind = ATTN_SCALE_VALUE, .scale = 1}};
    if (sscanf(case_text(c, "scale"), "1/sqrt(%lf)", &width) == 1) x.p.score.scale = 1 / sqrt(width);
    compare_scores(c, &v, &x, v.x, v.y);
}

static void score_dot(table_case *c) { score_kind(c, ATTN_SCORE_DOT); }
static void score_cosine(table_case *c) { score_kind(c, ATTN_SCORE_COSINE); }

/*
 * All of these are [x;1]^T W [y;1].  MATRIX: W is the inner block; WITH_ONES: W as in the file; LINEAR and TRILINEAR: vectors for
 * x, y and (TRILINEAR) x*y.  b is added in the corner, where 1 meets 1.
 */
static void score_bilinear(table_case *c)
{
    static const char *const known[] = {"X@W@Y^T+b", "[X;1]@W@[Y;1]^T+b", "w.[x;y]+b", "w.[x;y;x*y]"};
    enum { MATRIX, WITH_ONES, LINEAR, TRILINEAR, KINDS };
    int kind = 0;
    vectors v;
    while (kind < KINDS && strcmp(known[kind], case_text(c, "score")) != 0) kind++;
    if (kind == KINDS) {
        conclude(c->result, CHECK_SKIPPED, "score %.100s is not known", case_text(c, "score"));
        return;
    }
    if (!read_vectors(c, &v)) return;
    const view given = case_need_rank(c, kind == MATRIX || kind == WITH_ONES ? "in.W" : "in.w", kind <= WITH_ONES ? 2 : 1);
    const int64_t rows = v.dim_x + 1, columns = v.dim_y + 1,
                  files[KINDS] = {v.dim_x * v.dim_y, rows * columns, v.dim_x + v.dim_y, 2 * v.dim_x + v.dim_y};
    if (!view_present(&given)) return;
    if (view_count(&given) != files[kind]) {
        conclude(c->result, CHECK_FAILED, "w has %lld numbers, not %lld", (long long)view_count(&given), (long long)files[kind]);
        return;
    }
    double *w = case_doubles(c, &given), *W = pool_take(&c->pool, rows * columns, sizeof *W);
    for (int64_t n = 0; n < rows * columns; n++) {
        const int64_t a = n / columns, b = n % columns;
        const int last_a = a == v.dim_x, last_b = b == v.dim_y;
        W[n] = 0;
        if (kind == WITH_ONES) W[n] = w[n];
        if (kind == MATRIX && !last_a && !last_b) W[n] = w[a * v.dim_y + b];
        if (kind >= LINEAR && last_b && !last_a) W[n] = w[a];
        if (kind >= LINEAR && last_a && !last_b) W[n] = w[v.dim_x + b];
        if (kind == TRILINEAR && !last_a && a == b) W[n] = w[v.dim_x + v.dim_y + a];
        if (last_a && last_b) W[n] += case_param(c, "b", 0);
    }
    case_attention x = {.p.shape.dim_qk = rows, .p.score = {.kind = ATTN_SCORE_GENERAL, .dim_k = columns}};
    x.a.score_matrix = case_slot(c, W, rows * columns);
    compare_scores(c, &v, &x, with_ones(c, v.x, v.batch * v.len_x, v.dim_x), with_ones(c, v.y, v.batch * v.len_y, v.dim_y));
}

static void score_additive(table_case *c)
{
    vectors v;
    if (strcmp(case_text(c, "score"), "tanh(vector@W + matrix@U)@V") != 0) {
        conclude(c->result, CHECK_SKIPPED, "score %.100s is not known", case_text(c, "score"));
        return;
    }
    if (!read_vectors(c, &v)) return;
    const view W = case_need_rank(c, "in.W", 2), U = case_need_rank(c, "in.U", 2), V = case_need_rank(c, "in.V", 2);
    if (!view_present(&W) || !view_present(&U) || !view_present(&V)) return;
    const int64_t hidden = W.size[1];
    if (W.size[0] != v.dim_x || U.size[0] != v.dim_y || U.size[1] != hidden || view_count(&V) != hidden) {
        conclude(c->result, CHECK_FAILED, "the weights do not fit each other");
        return;
    }
    case_attention x = {.p.shape.dim_qk = hidden, .p.score.kind = ATTN_SCORE_ADDITIVE};
    x.a.score_matrix = case_slot(c, case_doubles(c, &V), hidden);
    compare_scores(c, &v, &x, case_product(c, v.x, v.batch * v.len_x, v.dim_x, case_doubles(c, &W), hidden),
                   case_product(c, v.y, v.batch * v.len_y, v.dim_y, case_doubles(c, &U), hidden));
}

/* ---- keras: query [batch][query][channel], value [batch][key][channel], key (default: the value) ---- */

/* Sets shape, masks and tensors, with queries and keys times a factor; the caller has already set p.score. */
static int keras_begin(table_case *c, case_attention *x, double factor, view *query)
{
    const view q = case_need_rank(c, "in.query", 3), key = case_find(c, "in.key"), value = case_find(c, "in.value");
    const view keep = case_find(c, "in.value_mask"), k = view_present(&key) ? key : value, v = view_present(&value) ? value : key;
    if (!view_present(&q) || k.rank != 3 || v.rank != 3 || k.size[1] != v.size[1] || k.size[0] != q.size[0]) {
        conclude(c->result, CHECK_FAILED, "query, key and value do not fit each other");
        return 0;
    }
    x->p.shape = (attn_shape){q.size[0], 1, 1, q.size[1], k.size[1], q.size[2], v.size[2]};
    double *Q = case_doubles(c, &q), *K = case_doubles(c, &k);
    for (int64_t n = 0; n < view_count(&q); n++) Q[n] *= factor;
    for (int64_t n = 0; n < view_count(&k); n++) K[n] *= factor;
    case_attention_begin(c, x, Q, K, case_doubles(c, &v));
    x->p.mask.causal = case_flag(c, "causal");
    if (view_present(&keep)) {
        unsigned char *mask = pool_take(&c->pool, view_count(&keep), 1);
        for (int64_t n = 0; n < view_count(&keep); n++) mask[n] = view_get(&keep, n) > 0;
        x->p.mask.empty = ATTN_EMPTY_UNIFORM; /* masked keys get -1e9 */
        x->a.mask = (attn_input){mask, ATTN_BOOL, {k.size[1], 0, 0, 1}};
    }
    *query = q;
    return 1;
}

/* A query mask zeroes rows of the output, but not of the weights. */
static void keras_compare(table_case *c, case_attention *x)
{
    static const char *const names[] = {"out.output", "out.attention_probs", "out.scores"};
    const attn_shape *s = &x->p.shape;
    const int64_t rows = s->batch * s->len_q;
    const view keep = case_find(c, "in.query_mask");
    if (!case_attend(c, x)) return;
    for (int64_t n = 0; view_present(&keep) && n < rows * s->dim_v; n++)
        if (!(view_get(&keep, n / s->dim_v) > 0)) x->o[n] = 0;
    const double *got[] = {x->o, x->weights, x->scores};
    const int64_t count[] = {rows * s->dim_v, rows * s->len_kv, rows * s->len_kv};
    for (int k = 0; k < 3; k++) {
        const view expected = case_find(c, names[k]);
        if (view_present(&expected)) case_compare(c, names[k], got[k], count[k]);
    }
}

static void keras_dot(table_case *c)
{
    view q;
    case_attention x = {.p.score = {.scale_kind = ATTN_SCALE_VALUE, .scale = case_param(c, "scale", 1)}};
    if (strcmp(case_text(c, "score"), "q.k (no 1/sqrt(d))") != 0)
        conclude(c->result, CHECK_SKIPPED, "score %.100s is not known", case_text(c, "score"));
    else if (keras_begin(c, &x, 1, &q)) keras_compare(c, &x);
}

/* weight * sum tanh(scale (q + k)), or a weight for each channel: additive scores without projections. */
static void keras_additive(table_case *c)
{
    const int concat = strcmp(case_text(c, "score"), "concat_score_weight*sum(tanh(scale*(q+k)))") == 0;
    const view given = case_find(c, "in.score_scale");
    view q;
    case_attention x = {.p.score.kind = ATTN_SCORE_ADDITIVE};
    if (!concat && strcmp(case_text(c, "score"), "sum(score_scale*tanh(q+k))") != 0) {
        conclude(c->result, CHECK_SKIPPED, "score %.100s is not known", case_text(c, "score"));
        return;
    }
    if (!keras_begin(c, &x, concat ? case_param(c, "scale", 1) : 1, &q)) return;
    double *w = pool_take(&c->pool, q.size[2], sizeof *w);
    if (view_present(&given) && view_count(&given) != q.size[2]) {
        conclude(c->result, CHECK_FAILED, "score_scale does not have a number for each channel");
        return;
    }
    for (int64_t n = 0; n < q.size[2]; n++)
        w[n] = concat ? case_param(c, "concat_score_weight", 1) : view_present(&given) ? view_get(&given, n) : 1;
    x.a.score_matrix = case_slot(c, w, q.size[2]);
    keras_compare(c, &x);
}

/* Scores as inputs: the bias of queries and keys without channels. */
static void keras_scores(table_case *c)
{
    const view scores = case_need_rank(c, "in.scores", 3), v = case_need_rank(c, "in.value", 3),
               keep = case_find(c, "in.scores_mask");
    if (!view_present(&scores) || !view_present(&v) || (view_present(&keep) && view_count(&keep) != view_count(&scores))) return;
    case_attention x = {.p.shape = {scores.size[0], 1, 1, scores.size[1], scores.size[2], 0, v.size[2]}};
    const double none = 0;
    case_attention_begin(c, &x, &none, &none, case_doubles(c, &v));
    x.a.bias = case_slot(c, case_doubles(c, &scores), view_count(&scores));
    if (view_present(&keep)) {
        unsigned char *mask = pool_take(&c->pool, view_count(&keep), 1);
        for (int64_t n = 0; n < view_count(&keep); n++) mask[n] = view_get(&keep, n) > 0;
        x.p.mask.empty = ATTN_EMPTY_UNIFORM;
        x.a.mask = attn_in(mask);
    }
    keras_compare(c, &x);
}

const table_row table_score_rows[] = {
    {"onnx_attention", "Softmax", softmax_case, " axis ", 0},
    {"ort_web", "ai.onnx.Softmax", softmax_case, " axis ", 0},
    {"onnx_attention", "LogSoftmax", log_softmax_case, " axis ", 0},
    {"allennlp_scoring", "dot score", score_dot, " normalize ", 1},
    {"allennlp_scoring", "scaled dot score", score_dot, " scale normalize ", 1},
    {"allennlp_scoring", "cosine score", score_cosine, " normalize ", 1},
    {"allennlp_scoring", "Bahdanau/additive score", score_additive, " score normalize ", 1},
    {"allennlp_scoring", "bilinear score", score_bilinear, " score b normalize ", 1},
    {"allennlp_scoring", "linear(concat) score", score_bilinear, " score b normalize ", 1},
    {"allennlp_scoring", "trilinear score", score_bilinear, " score b normalize ", 1},
    {"keras_attention", "Attention(dot)", keras_dot, " score scale causal ", 1},
    {"keras_attention", "Attention(concat)", keras_additive, " score scale causal concat_score_weight ", 1},
    {"keras_attention", "AdditiveAttention", keras_additive, " score scale causal ", 1},
    {"keras_attention", "masked softmax + weighted sum", keras_scores, " mask ", 1},
    {0},
};
