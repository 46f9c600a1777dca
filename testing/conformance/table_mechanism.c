/* SPDX-License-Identifier: MIT
 * table_mechanism.c - cases of mechanism_grad with other scores or positions: every output and every gradient. */
#include <string.h>

#include "attn/position.h"
#include "table_case.h"

/* One attention, forward and backward.  Rotations, projections and lookups before it, and their gradients, are up to the caller. */
typedef struct mechanism {
    case_attention x;
    view q, k, v;
    double *Q, *K;       /* inputs of the attention: p.shape.dim_qk and p.score.dim_k channels */
    double *w, *table;   /* of p.score and p.bias_table; NULL: none */
    double *relative[3]; /* of p.relative: the table of keys, u and v */
    int shared;          /* 1: all heads share one table of keys */
    int64_t count_w, count_table, count_relative[3];
    double *dQ, *dK, *dw, *dtable, *drelative[3]; /* gradients */
} mechanism;

/* Reads q, k and v; Q and K start as copies of q and k. */
static int mechanism_begin(table_case *c, mechanism *m, const char *formula)
{
    m->q = case_need_rank(c, "in.query", 4);
    m->k = case_need_rank(c, "in.key", 4);
    m->v = case_need_rank(c, "in.value", 4);
    if (formula && strcmp(case_text(c, "formula"), formula) != 0)
        conclude(c->result, CHECK_SKIPPED, "formula %.100s is not known", case_text(c, "formula"));
    if (c->result->status != CHECK_PASSED || !view_present(&m->q) || !view_present(&m->k) || !view_present(&m->v)) return 0;
    m->x.p.shape = (attn_shape){m->q.size[0], m->q.size[1], m->k.size[1], m->q.size[2], m->k.size[2], m->q.size[3], m->v.size[3]};
    if (m->k.size[3] != m->q.size[3]) m->x.p.score.dim_k = m->k.size[3];
    m->Q = case_doubles(c, &m->q);
    m->K = case_doubles(c, &m->k);
    return 1;
}

static int64_t vectors_of(const view *v) { return view_count(v) / v->size[3]; }

/* A pair of bounds; -1 if one is not a number. */
static void take_window(table_case *c, attn_mask *mask)
{
    const cJSON *window = cJSON_GetObjectItemCaseSensitive(c->params, "window");
    int64_t bound[2] = {-1, -1};
    for (int side = 0; side < 2 && cJSON_GetArraySize(window) == 2; side++) {
        const cJSON *one = cJSON_GetArrayItem(window, side);
        if (cJSON_IsNumber(one) && one->valuedouble >= 0) bound[side] = (int64_t)one->valuedouble;
    }
    mask->window = bound[0] >= 0 || bound[1] >= 0;
    mask->window_left = mask->window ? bound[0] : 0;
    mask->window_right = mask->window ? bound[1] : 0;
}

/* [batch or 1, head or 1, query or 1, key]: 1 keeps. */
static void take_mask(table_case *c, mechanism *m)
{
    const int64_t size[4] = {m->q.size[0], m->q.size[1], m->q.size[2], m->k.size[2]};
    const view mask = case_find(c, "in.mask");
    view all;
    if (!view_present(&mask)) return;
    if (mask.rank != 4 || !view_expand(&mask, size, &all)) {
        conclude(c->result, CHECK_FAILED, "the mask does not broadcast to the scores");
        return;
    }
    unsigned char *keep = pool_take(&c->pool, view_count(&all), 1);
    for (int64_t n = 0; n < view_count(&all); n++) keep[n] = view_get(&all, n) != 0;
    m->x.a.mask = attn_in(keep);
}

/* Forward and backward, with the case's masks and scale; compares o, lse, weights and the gradient of values. */
static int mechanism_run(table_case *c, mechanism *m)
{
    case_attention *x = &m->x;
    const view grad_o = case_need(c, "in.grad_output"), grad_lse = case_find(c, "in.grad_lse");
    const char *causal = case_text(c, "causal"), *scale = case_text(c, "scale");
    if (!view_present(&grad_o)) return 0;
    x->p.score.temperature = case_param(c, "temperature", 0);
    x->p.score.softcap = case_param(c, "softcap", 0);
    take_window(c, &x->p.mask);
    take_mask(c, m);
    x->p.mask.causal = causal[0] != 0 && strcmp(causal, "none") != 0;
    if (strcmp(causal, "bottom_right") == 0) x->p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    else if (x->p.mask.causal && strcmp(causal, "top_left") != 0)
        conclude(c->result, CHECK_SKIPPED, "causal %.60s is not known", causal);
    if (scale[0] && strcmp(scale, "1/sqrt(D)") != 0) conclude(c->result, CHECK_SKIPPED, "scale %.60s is not known", scale);
    if (case_param(c, "scale", 0) != 0) x->p.score.scale_kind = ATTN_SCALE_VALUE, x->p.score.scale = case_param(c, "scale", 0);
    case_attention_begin(c, x, m->Q, m->K, case_doubles(c, &m->v));
    static const struct {
        int t, grad;
    } relative[] = {{TENSOR(relative_keys), TENSOR(grad_relative_keys)},
                    {TENSOR(relative_u), TENSOR(grad_relative_u)},
                    {TENSOR(relative_v), TENSOR(grad_relative_v)}};
    const int64_t pairs = vectors_of(&m->q) * m->k.size[2];
    if (m->w) x->a.score_matrix = case_slot(c, m->w, m->count_w);
    if (m->table) x->a.bias_table = case_slot(c, m->table, m->count_table);
    for (int k = 0; k < 3; k++) {
        attn_output *slot = tensors_slot(&x->a, relative[k].t);
        if (!m->relative[k]) continue;
        *slot = case_output(c, m->count_relative[k]);
        slot->data = case_give(c, m->relative[k], m->count_relative[k]);
        if (k == 0 && m->shared) slot->stride[2] = x->p.shape.dim_qk, slot->stride[3] = 1;
    }
    if (!case_attend(c, x)) return 0;
    case_compare(c, "out.output", x->o, view_count(&grad_o));
    case_compare(c, "out.lse", x->lse, vectors_of(&m->q));
    case_compare(c, "out.weights", x->weights, pairs);

    attn_problem p = x->p;
    attn_tensors a = tensors_of_op(&x->a, ATTN_BACKWARD);
    attn_error error;
    const int64_t of_q = vectors_of(&m->q) * p.shape.dim_qk,
                  of_k = vectors_of(&m->k) * (p.score.dim_k ? p.score.dim_k : p.shape.dim_qk), of_v = view_count(&m->v);
    p.op = ATTN_BACKWARD;
    a.grad_o = case_slot(c, case_doubles(c, &grad_o), view_count(&grad_o));
    if (view_present(&grad_lse)) a.grad_lse = case_slot(c, case_doubles(c, &grad_lse), view_count(&grad_lse));
    a.grad_q = case_output(c, of_q);
    a.grad_k = case_output(c, of_k);
    a.grad_v = case_output(c, of_v);
    if (m->w) a.grad_score_matrix = case_output(c, m->count_w);
    if (m->table) a.grad_bias_table = case_output(c, m->count_table);
    for (int k = 0; k < 3; k++)
        if (m->relative[k]) *tensors_slot(&a, relative[k].grad) = case_output(c, m->count_relative[k]);
    const attn_status status = attn_compute(&p, &a, &error);
    case_take(c, status, &error);
    if (status != ATTN_OK) return 0;
    case_compare(c, "out.grad_value", case_taken(c, &a.grad_v, of_v), of_v);
    m->dQ = case_taken(c, &a.grad_q, of_q);
    m->dK = case_taken(c, &a.grad_k, of_k);
    if (m->w) m->dw = case_taken(c, &a.grad_score_matrix, m->count_w);
    for (int k = 0; k < 3; k++)
        if (m->relative[k]) m->drelative[k] = case_taken(c, tensors_at(&a, relative[k].grad), m->count_relative[k]);
    if (m->table) m->dtable = case_taken(c, &a.grad_bias_table, m->count_table);
    return 1;
}

static void compare_inputs(table_case *c, const mechanism *m, const double *dq, const double *dk)
{
    case_compare(c, "out.grad_query", dq, view_count(&m->q));
    case_compare(c, "out.grad_key", dk, view_count(&m->k));
}

/* ---- a matrix between queries and keys ---- */

static void with_matrix(table_case *c, attn_score_kind kind, const char *formula)
{
    mechanism m = {.x.p.score.kind = kind};
    const view w = case_need_rank(c, "in.w", 2);
    if (!view_present(&w) || !mechanism_begin(c, &m, formula)) return;
    if (kind == ATTN_SCORE_METRIC) m.x.p.score.dim_metric = w.size[0];
    m.w = case_doubles(c, &w);
    m.count_w = view_count(&w);
    if (!mechanism_run(c, &m)) return;
    compare_inputs(c, &m, m.dQ, m.dK);
    case_compare(c, "out.grad_w", m.dw, m.count_w);
}

static void general(table_case *c) { with_matrix(c, ATTN_SCORE_GENERAL, "q^T w k, no scale"); }
static void metric(table_case *c) { with_matrix(c, ATTN_SCORE_METRIC, "(w q).(w k), g = w^T w"); }

/* ---- additive scores: projections around them ---- */

static double *transposed(table_case *c, const double *x, int64_t rows, int64_t columns)
{
    double *y = pool_take(&c->pool, rows * columns, sizeof *y);
    for (int64_t n = 0; n < rows * columns; n++) y[n % columns * rows + n / columns] = x[n];
    return y;
}

/* With w_q [hidden][channels of q] and w_k; computes their gradients into dw. */
static void additive_of(table_case *c, mechanism *m, const double *w_q, const double *w_k, int64_t hidden, double *dw[2])
{
    const view a = case_need_rank(c, "in.v_a", 1), b = case_find(c, "in.b");
    const int64_t dim_q = m->q.size[3], dim_k = m->k.size[3], queries = vectors_of(&m->q), keys = vectors_of(&m->k);
    if (!view_present(&a) || view_count(&a) != hidden || (view_present(&b) && view_count(&b) != hidden)) {
        conclude(c->result, CHECK_FAILED, "the weights do not fit each other");
        return;
    }
    const double *q = m->Q, *k = m->K;
    m->Q = case_product(c, q, queries, dim_q, transposed(c, w_q, hidden, dim_q), hidden);
    m->K = case_product(c, k, keys, dim_k, transposed(c, w_k, hidden, dim_k), hidden);
    m->x.p.shape.dim_qk = hidden;
    m->x.p.score.dim_k = 0;
    m->x.p.score.additive_bias = view_present(&b);
    m->count_w = hidden * (1 + view_present(&b));
    m->w = pool_take(&c->pool, m->count_w, sizeof *m->w);
    for (int64_t n = 0; n < m->count_w; n++) m->w[n] = n < hidden ? view_get(&a, n) : view_get(&b, n - hidden);
    if (!mechanism_run(c, m)) return;
    compare_inputs(c, m, case_product(c, m->dQ, queries, hidden, w_q, dim_q), case_product(c, m->dK, keys, hidden, w_k, dim_k));
    dw[0] = case_product(c, transposed(c, m->dQ, queries, hidden), hidden, queries, q, dim_q);
    dw[1] = case_product(c, transposed(c, m->dK, keys, hidden), hidden, keys, k, dim_k);
    case_compare(c, "out.grad_v_a", m->dw, hidden);
    if (view_present(&b)) case_compare(c, "out.grad_b", m->dw + hidden, hidden);
}

static void additive(table_case *c)
{
    mechanism m = {.x.p.score.kind = ATTN_SCORE_ADDITIVE};
    const view b = case_find(c, "in.b"), w_q = case_need_rank(c, "in.w_q", 2), w_k = case_need_rank(c, "in.w_k", 2);
    double *dw[2] = {NULL, NULL};
    if (!mechanism_begin(c, &m, view_present(&b) ? "v_a . tanh(w_q q + w_k k + b)" : "v_a . tanh(w_q q + w_k k)")) return;
    if (w_q.size[0] != w_k.size[0] || w_q.size[1] != m.q.size[3] || w_k.size[1] != m.k.size[3]) {
        conclude(c->result, CHECK_FAILED, "the projections do not fit queries and keys");
        return;
    }
    additive_of(c, &m, case_doubles(c, &w_q), case_doubles(c, &w_k), w_q.size[0], dw);
    if (!dw[0]) return;
    case_compare(c, "out.grad_w_q", dw[0], view_count(&w_q));
    case_compare(c, "out.grad_w_k", dw[1], view_count(&w_k));
}

/* One matrix for the concatenation of query and key. */
static void concat(table_case *c)
{
    mechanism m = {.x.p.score.kind = ATTN_SCORE_ADDITIVE};
    const view w = case_need_rank(c, "in.w", 2);
    double *dw[2] = {NULL, NULL}, *half[2], *joined;
    if (!view_present(&w) || !mechanism_begin(c, &m, "v_a . tanh(w [q;k])")) return;
    const int64_t hidden = w.size[0], dim_q = m.q.size[3], dim_k = m.k.size[3], width = dim_q + dim_k;
    if (w.size[1] != width) {
        conclude(c->result, CHECK_FAILED, "the projection does not fit queries and keys");
        return;
    }
    half[0] = pool_take(&c->pool, hidden * dim_q, sizeof(double));
    half[1] = pool_take(&c->pool, hidden * dim_k, sizeof(double));
    joined = pool_take(&c->pool, hidden * width, sizeof(double));
    for (int64_t n = 0; n < hidden * width; n++) {
        const int64_t row = n / width, column = n % width;
        *(column < dim_q ? &half[0][row * dim_q + column] : &half[1][row * dim_k + column - dim_q]) = view_get(&w, n);
    }
    additive_of(c, &m, half[0], half[1], hidden, dw);
    for (int64_t n = 0; dw[0] && n < hidden * width; n++)
        joined[n] = n % width < dim_q ? dw[0][n / width * dim_q + n % width] : dw[1][n / width * dim_k + n % width - dim_q];
    if (dw[0]) case_compare(c, "out.grad_w", joined, hidden * width);
}

/* ---- positions ---- */

static void turn(table_case *c, const attn_rope *rope, int inverse, const int64_t shape[4], double *x, const int64_t *at)
{
    attn_rope r = *rope;
    r.inverse = inverse;
    case_turn(c, &r, shape, NULL, x, at);
}

static int64_t *positions_of(table_case *c, const view *v, int64_t first)
{
    int64_t *at = pool_take(&c->pool, v->size[0] * v->size[2], sizeof *at);
    for (int64_t n = 0; n < v->size[0] * v->size[2]; n++) at[n] = n % v->size[2] + first;
    return at;
}

static void rotary(table_case *c)
{
    mechanism m = {0};
    if (strcmp(case_text(c, "positions"), "query i at i+Sk-Sq") != 0) {
        conclude(c->result, CHECK_SKIPPED, "positions %.60s are not known", case_text(c, "positions"));
        return;
    }
    if (!mechanism_begin(c, &m, NULL)) return;
    const attn_rope rope = {.struct_size = sizeof rope,
                            .pairs = case_flag(c, "interleaved") ? ATTN_ROPE_PAIRS_INTERLEAVED : ATTN_ROPE_PAIRS_HALVES,
                            .dim_rotary = (int64_t)case_param(c, "rotary_dim", 0),
                            .base = case_param(c, "base", 0)};
    const int64_t *at_q = positions_of(c, &m.q, m.k.size[2] - m.q.size[2]), *at_k = positions_of(c, &m.k, 0);
    turn(c, &rope, 0, m.q.size, m.Q, at_q);
    turn(c, &rope, 0, m.k.size, m.K, at_k);
    if (!mechanism_run(c, &m)) return;
    turn(c, &rope, 1, m.q.size, m.dQ, at_q); /* the transpose */
    turn(c, &rope, 1, m.k.size, m.dK, at_k);
    compare_inputs(c, &m, m.dQ, m.dK);
}

/* T5: the file's table is [bucket][head]. */
static void t5(table_case *c)
{
    mechanism m = {0};
    const view table = case_need_rank(c, "in.table", 2);
    if (!view_present(&table) || !mechanism_begin(c, &m, NULL)) return;
    const int64_t buckets = (int64_t)case_param(c, "buckets", 0), heads = m.q.size[1];
    if (table.size[0] != buckets || table.size[1] != heads || strcmp(case_text(c, "table"), "(bucket, head)") != 0) {
        conclude(c->result, CHECK_FAILED, "the table is not (bucket, head)");
        return;
    }
    m.table = transposed(c, case_doubles(c, &table), buckets, heads);
    m.count_table = buckets * heads;
    m.x.p.bias_table = (attn_bias_table){.kind = ATTN_DISTANCE_T5,
                                         .buckets = buckets,
                                         .max_distance = (int64_t)case_param(c, "max_distance", 0),
                                         .causal = !case_flag(c, "bidirectional")};
    if (!mechanism_run(c, &m)) return;
    compare_inputs(c, &m, m.dQ, m.dK);
    case_compare(c, "out.grad_table", transposed(c, m.dtable, heads, buckets), m.count_table);
}

/* Relative keys, (q + u).k + (q + w).r by distance: u and w are per head and optional; r is one table, or one for each head. */
static void relative(table_case *c)
{
    static const char *const formulas[] = {"(q.k + q.r[clip(i-j,-c,c)+c]) / sqrt(D)", "(q.k + q.r[i-j+c]) / sqrt(D)",
                                           "((q+u).k + (q+w).r[h,i-j+c]) / sqrt(D)"};
    static const char *const grads[] = {"out.grad_r", "out.grad_u", "out.grad_w"};
    mechanism m = {0};
    const view parts[] = {case_need(c, "in.r"), case_find(c, "in.u"), case_find(c, "in.w")};
    const int64_t clip = (int64_t)case_param(c, "clip", 0);
    int known = 0;
    for (int f = 0; f < 3; f++) known |= strcmp(case_text(c, "formula"), formulas[f]) == 0;
    if (!known) conclude(c->result, CHECK_SKIPPED, "formula %.100s is not known", case_text(c, "formula"));
    if (!view_present(&parts[0]) || !mechanism_begin(c, &m, NULL)) return;
    const int64_t H = m.q.size[1], D = m.q.size[3], rows = 2 * clip + 1, tables = parts[0].rank == 3 ? H : 1;
    for (int k = 0; k < 3; k++) {
        if (!view_present(&parts[k])) continue;
        m.relative[k] = case_doubles(c, &parts[k]);
        m.count_relative[k] = view_count(&parts[k]);
        if (m.count_relative[k] != (k ? H : tables * rows) * D)
            conclude(c->result, CHECK_FAILED, "r, u and w do not fit the queries");
    }
    m.x.p.relative = (attn_relative){.first = -clip, .rows = rows};
    m.shared = parts[0].rank != 3;
    if (c->result->status != CHECK_PASSED || !mechanism_run(c, &m)) return;
    compare_inputs(c, &m, m.dQ, m.dK);
    for (int k = 0; k < 3; k++)
        if (m.relative[k]) case_compare(c, grads[k], m.drelative[k], m.count_relative[k]);
}

#define OPTIONS " layout scale temperature softcap causal window "

const table_row table_mechanism_rows[] = {
    {"mechanism_grad", "general", general, OPTIONS " formula ", 1},
    {"mechanism_grad", "metric", metric, OPTIONS " formula ", 1},
    {"mechanism_grad", "additive", additive, OPTIONS " formula ", 1},
    {"mechanism_grad", "concat", concat, OPTIONS " formula ", 1},
    {"mechanism_grad", "rope_attention", rotary, OPTIONS " base interleaved rotary_dim positions ", 1},
    {"mechanism_grad", "relative", relative, OPTIONS " formula clip ", 1},
    {"mechanism_grad", "t5_bias", t5, OPTIONS " buckets max_distance bidirectional table ", 1},
    {0},
};
