/* SPDX-License-Identifier: MIT
 * table_mechanism.c - cases of mechanism_grad with other scores or positions: every output and every gradient. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn/position.h"
#include "table_case.h"

/* One attention on its way.  What is turned, projected or looked up before it is its caller's, and so is the way back. */
typedef struct mechanism {
    case_attention x;
    view q, k, v;
    double *Q, *K;            /* as the attention has them: p.shape.dim_qk and p.score.dim_k channels */
    double *w, *table, *bias; /* of p.score, p.bias_table and, for every pair, p.bias; NULL: none */
    int64_t count_w, count_table;
    double *dQ, *dK, *dw, *dtable, *dbias; /* what came back */
} mechanism;

/* Reads q, k and v; Q and K are theirs at first. */
static int mechanism_begin(table_case *c, mechanism *m, const char *formula)
{
    m->q = case_need_rank(c, "in.query", 4);
    m->k = case_need_rank(c, "in.key", 4);
    m->v = case_need_rank(c, "in.value", 4);
    if (formula && strcmp(case_text(c, "formula"), formula) != 0)
        case_conclude(c, CHECK_SKIPPED, "formula %.100s is not known", case_text(c, "formula"));
    if (c->result->status != CHECK_PASSED || !view_given(&m->q) || !view_given(&m->k) || !view_given(&m->v)) return 0;
    m->x.p.shape = (attn_shape){m->q.size[0], m->q.size[1], m->k.size[1], m->q.size[2], m->k.size[2], m->q.size[3], m->v.size[3]};
    if (m->k.size[3] != m->q.size[3]) m->x.p.score.dim_k = m->k.size[3];
    m->Q = case_doubles(c, &m->q);
    m->K = case_doubles(c, &m->k);
    return 1;
}

static int64_t vectors_of(const view *v) { return view_count(v) / v->size[3]; }

/* Forward and backward, with what the case says of masks and scale; compares o, lse, weights and the gradient of values. */
static int mechanism_run(table_case *c, mechanism *m)
{
    case_attention *x = &m->x;
    const view grad_o = case_need(c, "in.grad_output"), grad_lse = case_find(c, "in.grad_lse");
    const char *causal = case_text(c, "causal"), *scale = case_text(c, "scale");
    if (!view_given(&grad_o)) return 0;
    x->p.mask.causal = causal[0] != 0;
    if (strcmp(causal, "bottom_right") == 0) x->p.mask.align = ATTN_ALIGN_BOTTOM_RIGHT;
    else if (causal[0] && strcmp(causal, "top_left") != 0) case_conclude(c, CHECK_SKIPPED, "causal %.60s is not known", causal);
    if (scale[0] && strcmp(scale, "1/sqrt(D)") != 0) case_conclude(c, CHECK_SKIPPED, "scale %.60s is not known", scale);
    if (case_param(c, "scale", 0) != 0) x->p.score.scale_kind = ATTN_SCALE_VALUE, x->p.score.scale = case_param(c, "scale", 0);
    case_attention_begin(c, x, m->Q, m->K, case_doubles(c, &m->v));
    if (m->w) x->p.score.w.dtype = c->dtype, x->a.w = case_give(c, m->w, m->count_w);
    if (m->table) x->p.bias_table.table.dtype = c->dtype, x->a.bias_table = case_give(c, m->table, m->count_table);
    const int64_t pairs = vectors_of(&m->q) * m->k.size[2];
    if (m->bias) x->p.bias.additive = 1, x->p.bias.bias.dtype = c->dtype, x->a.bias = case_give(c, m->bias, pairs);
    if (!case_attend(c, x)) return 0;
    case_compare(c, "out.output", x->o, view_count(&grad_o));
    case_compare(c, "out.lse", x->lse, vectors_of(&m->q));
    case_compare(c, "out.weights", x->weights, pairs);

    attn_problem p = x->p;
    attn_args a = x->a;
    attn_error error;
    const int64_t of_q = vectors_of(&m->q) * p.shape.dim_qk,
                  of_k = vectors_of(&m->k) * (p.score.dim_k ? p.score.dim_k : p.shape.dim_qk);
    p.op = ATTN_BACKWARD;
    p.want = (attn_want){.lse = 1};
    p.gradients.lse = view_given(&grad_lse);
    p.gradients.w = m->w != NULL;
    p.gradients.bias_table = m->table != NULL;
    p.gradients.bias = m->bias != NULL;
    a.grad_o = case_give(c, case_doubles(c, &grad_o), view_count(&grad_o));
    if (view_given(&grad_lse)) a.grad_lse = case_give(c, case_doubles(c, &grad_lse), view_count(&grad_lse));
    a.grad_q = case_room(c, of_q);
    a.grad_k = case_room(c, of_k);
    a.grad_v = case_room(c, view_count(&m->v));
    if (m->w) a.grad_w = case_room(c, m->count_w);
    if (m->table) a.grad_bias_table = case_room(c, m->count_table);
    if (m->bias) a.grad_bias = case_room(c, pairs);
    const attn_status status = attn_forward(&p, &a, &error);
    case_take(c, status, &error);
    if (status != ATTN_OK) return 0;
    case_compare(c, "out.grad_value", case_read(c, a.grad_v, view_count(&m->v)), view_count(&m->v));
    m->dQ = case_read(c, a.grad_q, of_q);
    m->dK = case_read(c, a.grad_k, of_k);
    if (m->w) m->dw = case_read(c, a.grad_w, m->count_w);
    if (m->bias) m->dbias = case_read(c, a.grad_bias, pairs);
    if (m->table) m->dtable = case_read(c, a.grad_bias_table, m->count_table);
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
    if (!view_given(&w) || !mechanism_begin(c, &m, formula)) return;
    if (kind == ATTN_SCORE_METRIC) m.x.p.score.dim_metric = w.size[0];
    m.w = case_doubles(c, &w);
    m.count_w = view_count(&w);
    if (!mechanism_run(c, &m)) return;
    compare_inputs(c, &m, m.dQ, m.dK);
    case_compare(c, "out.grad_w", m.dw, m.count_w);
}

static void general(table_case *c) { with_matrix(c, ATTN_SCORE_GENERAL, "q^T w k, no scale"); }
static void metric(table_case *c) { with_matrix(c, ATTN_SCORE_METRIC, "(w q).(w k), g = w^T w"); }

static double *transposed(table_case *c, const double *x, int64_t rows, int64_t columns)
{
    double *y = pool_take(&c->pool, rows * columns, sizeof *y);
    for (int64_t n = 0; n < rows * columns; n++) y[n % columns * rows + n / columns] = x[n];
    return y;
}

/* ---- positions ---- */

static void turn(table_case *c, const attn_rope *rope, int inverse, const int64_t shape[4], double *x, const int64_t *at)
{
    attn_rope r = *rope;
    const attn_layout dense = {ATTN_F64, {0, 0, 0, 0}};
    attn_error error;
    r.inverse = inverse;
    case_take(c, attn_rope_apply(&r, shape, &dense, x, &dense, x, at, &error), &error);
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
        case_conclude(c, CHECK_SKIPPED, "positions %.60s are not known", case_text(c, "positions"));
        return;
    }
    if (!mechanism_begin(c, &m, NULL)) return;
    const attn_rope rope = {.struct_size = sizeof rope,
                            .pairs = case_flag(c, "interleaved") ? ATTN_ROPE_INTERLEAVED : ATTN_ROPE_HALVES,
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
    if (!view_given(&table) || !mechanism_begin(c, &m, NULL)) return;
    const int64_t buckets = (int64_t)case_param(c, "buckets", 0), heads = m.q.size[1];
    if (table.size[0] != buckets || table.size[1] != heads || strcmp(case_text(c, "table"), "(bucket, head)") != 0) {
        case_conclude(c, CHECK_FAILED, "the table is not (bucket, head)");
        return;
    }
    m.table = transposed(c, case_doubles(c, &table), buckets, heads);
    m.count_table = buckets * heads;
    m.x.p.bias_table = (attn_bias_table){.used = 1,
                                         .kind = ATTN_DISTANCE_T5,
                                         .buckets = buckets,
                                         .max_distance = (int64_t)case_param(c, "max_distance", 0),
                                         .causal = !case_flag(c, "bidirectional")};
    if (!mechanism_run(c, &m)) return;
    compare_inputs(c, &m, m.dQ, m.dK);
    case_compare(c, "out.grad_table", transposed(c, m.dtable, heads, buckets), m.count_table);
}

/*
 * Relative keys, (q + u).k + (q + w).r by distance: the second product as a bias of every pair, whose gradient goes on to q, w and
 * r.  u and w are those of a head, and may be missing; r is one table, or one of each head.
 */
static void relative(table_case *c)
{
    static const char *const formulas[] = {"(q.k + q.r[clip(i-j,-c,c)+c]) / sqrt(D)", "(q.k + q.r[i-j+c]) / sqrt(D)",
                                           "((q+u).k + (q+w).r[h,i-j+c]) / sqrt(D)"};
    mechanism m = {0};
    const view r = case_need(c, "in.r"), u = case_find(c, "in.u"), w = case_find(c, "in.w");
    const int64_t clip = (int64_t)case_param(c, "clip", 0);
    int known = 0;
    for (int f = 0; f < 3; f++) known |= strcmp(case_text(c, "formula"), formulas[f]) == 0;
    if (!known) case_conclude(c, CHECK_SKIPPED, "formula %.100s is not known", case_text(c, "formula"));
    if (!view_given(&r) || !mechanism_begin(c, &m, NULL)) return;
    const int64_t H = m.q.size[1], Sq = m.q.size[2], Skv = m.k.size[2], D = m.q.size[3], rows = 2 * clip + 1,
                  tables = r.rank == 3 ? H : 1;
    if (r.size[r.rank - 1] != D || r.size[r.rank - 2] != rows || view_count(&r) != tables * rows * D ||
        (view_given(&u) && view_count(&u) != H * D) || (view_given(&w) && view_count(&w) != H * D)) {
        case_conclude(c, CHECK_FAILED, "r, u and w do not fit the queries");
        return;
    }
    const int64_t of_q = view_count(&m.q), pairs = vectors_of(&m.q) * Skv;
    const double scale = 1 / sqrt((double)D);
    double *table = case_doubles(c, &r), *other = pool_take(&c->pool, of_q, sizeof *other); /* q + w */
    for (int64_t n = 0; n < of_q; n++) {
        const int64_t channel = n / D / Sq % H * D + n % D;
        other[n] = m.Q[n] + (view_given(&w) ? view_get(&w, channel) : 0);
        m.Q[n] += view_given(&u) ? view_get(&u, channel) : 0;
    }
    int64_t *at = pool_take(&c->pool, pairs, sizeof *at); /* where the pair's row of r begins */
    m.bias = pool_take(&c->pool, pairs, sizeof *m.bias);
    for (int64_t n = 0; n < pairs; n++) {
        const int64_t i = n / Skv % Sq, distance = i - n % Skv, h = n / Skv / Sq % H;
        at[n] = ((tables > 1 ? h * rows : 0) + (distance < -clip ? -clip : distance > clip ? clip : distance) + clip) * D;
        m.bias[n] = 0;
        for (int64_t a = 0; a < D; a++) m.bias[n] += scale * other[n / Skv * D + a] * table[at[n] + a];
    }
    if (!mechanism_run(c, &m)) return;
    double *dr = pool_take(&c->pool, view_count(&r), sizeof *dr), *du = pool_take(&c->pool, H * D, sizeof *du),
           *dw = pool_take(&c->pool, H * D, sizeof *dw);
    for (int64_t n = 0; n < view_count(&r); n++) dr[n] = 0;
    for (int64_t n = 0; n < H * D; n++) du[n] = dw[n] = 0;
    for (int64_t n = 0; n < of_q; n++) du[n / D / Sq % H * D + n % D] += m.dQ[n];
    for (int64_t n = 0; n < pairs; n++)
        for (int64_t a = 0; a < D; a++) {
            const double back = scale * m.dbias[n] * table[at[n] + a];
            m.dQ[n / Skv * D + a] += back;
            dw[n / Skv / Sq % H * D + a] += back;
            dr[at[n] + a] += scale * m.dbias[n] * other[n / Skv * D + a];
        }
    compare_inputs(c, &m, m.dQ, m.dK);
    case_compare(c, "out.grad_r", dr, view_count(&r));
    if (view_given(&u)) case_compare(c, "out.grad_u", du, H * D);
    if (view_given(&w)) case_compare(c, "out.grad_w", dw, H * D);
}

const table_row table_mechanism_rows[] = {
    {"mechanism_grad", "general", general, " layout formula ", 1},
    {"mechanism_grad", "metric", metric, " layout formula ", 1},
    {"mechanism_grad", "rope_attention", rotary, " layout base interleaved rotary_dim causal positions scale ", 1},
    {"mechanism_grad", "relative", relative, " layout formula clip scale ", 1},
    {"mechanism_grad", "t5_bias", t5, " layout scale buckets max_distance bidirectional causal table ", 1},
    {0},
};
