/* SPDX-License-Identifier: MIT
 * tangent.c - forward mode of one query tile: A = sum W (Sd v + vd) and mu = sum P Sd over its keys, then the tangent of O is A -
 * mu O. */
#include "tangent.h"

#include <string.h>

#include "../base/names.h"

void attn_tangent_open(const attn_task *task, const attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_layout *q = &p->at.tan_q;
    if (!p->has.tan_q) return;
    w->kernel->pack_query(t->tile.width, t->tile.rows, p->shape.dim_qk, attn_query_row(task, task->args->tan_q, q, t->tile.first),
                          q->dtype, q->stride[2], attn_task_scale(task), attn_part(task, w->scratch.Qdt));
}

void attn_tangent_scores(const attn_task *task, const attn_gradient_tile *t, const attn_keys *keys, const attn_keys *tangents,
                         void *before)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_scratch *at = &w->scratch;
    const int64_t n = keys->high - keys->low, D = p->shape.dim_qk;
    const size_t bytes = (size_t)(n * w->tile_q) * attn_dtype_bytes(w->compute);
    void *Sd = attn_part(task, at->Sd), *other = attn_part(task, at->other), *stale = attn_part(task, at->block_max);

    if (p->has.tan_q)
        w->kernel->score(t->tile.width, n, D, attn_part(task, at->Qdt), keys->K, keys->ldk, Sd, stale, keys->V, keys->ldv);
    else memset(Sd, 0, bytes);
    if (p->has.tan_k) {
        w->kernel->score(t->tile.width, n, D, attn_part(task, at->Qt), tangents->K, tangents->ldk, other, stale, keys->V,
                         keys->ldv);
        w->jvp->add_tangents(t->tile.width, n, Sd, other);
    }
    if (before) memcpy(before, Sd, bytes);
    if (p->score.softcap > 0) w->backward->multiply(t->tile.width, n, Sd, attn_part(task, at->slope));
    if (p->has.modifier) {
        attn_task_slopes(task, &t->tile, keys, NULL, 0);
        w->backward->multiply(t->tile.width, n, Sd, attn_part(task, at->scratch));
    }
    if (p->has.tan_bias) {
        attn_block bias = {attn_pair_at(task, task->args->tan_bias, &p->at.tan_bias, t->tile.first, keys->low),
                           p->at.tan_bias.dtype, p->at.tan_bias.stride[2], p->at.tan_bias.stride[3]};
        w->kernel->add_bias(t->tile.width, t->tile.rows, n, Sd, stale, &bias, attn_part(task, at->scratch));
    }
    if (t->empty) w->kernel->revive(t->tile.width, n, Sd, t->empty); /* their weights depend on nothing */
}

/* At += X^T (rows of V), reading no row that X has 0 for where such a row may be poisoned. */
static void add_values(const attn_task *task, const attn_gradient_tile *t, int64_t n, const void *X, const void *V, int64_t ldv)
{
    const attn_walk *w = task->walk;
    const int64_t Dv = w->problem.shape.dim_v;
    int careful = (t->dropped || attn_drops_weights(&w->problem)) && w->backward->rows_not_finite(n, Dv, V, ldv);
    (careful ? w->backward->add_values_careful : w->backward->add_values)(t->tile.width, n, Dv, X, V, ldv,
                                                                          attn_part(task, w->scratch.At));
}

static void add_block(const attn_task *task, attn_gradient_tile *t, const attn_keys *keys, const attn_keys *tangents)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_scratch *at = &w->scratch;
    const int64_t n = keys->high - keys->low;
    void *S = attn_part(task, at->S), *Sd = attn_part(task, at->Sd);
    double keep = p->dropout.probability < 1 ? 1 / (1 - p->dropout.probability) : 0;
    attn_drop room;

    t->dropped =
        attn_task_score(task, &t->tile, attn_part(task, at->Qt), keys, p->score.softcap > 0 ? attn_part(task, at->slope) : NULL);
    if (t->empty) w->kernel->revive(t->tile.width, n, S, t->empty);
    attn_tangent_scores(task, t, keys, tangents, NULL);
    w->jvp->tangent(t->tile.width, n, S, Sd, attn_part(task, at->m), attn_task_drop(task, &t->tile, keys->low, &room), keep,
                    attn_part(task, at->mu));
    add_values(task, t, n, Sd, keys->V, keys->ldv);
    if (tangents->V) add_values(task, t, n, S, tangents->V, tangents->ldv);
}

void attn_tangent_walk(const attn_task *task, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const int64_t Dv = w->problem.shape.dim_v, lane_bytes = w->tile_q * (int64_t)attn_dtype_bytes(w->compute);
    memset(attn_part(task, w->scratch.At), 0, (size_t)(Dv * lane_bytes));
    memset(attn_part(task, w->scratch.mu), 0, (size_t)lane_bytes);
    for (attn_interval run = {t->keys.low, t->keys.low}; attn_gradient_next(task, t, &run);) {
        attn_keys keys = attn_task_keys(task, run.low, run.high);
        attn_keys tangents = attn_task_tangents_of_keys(task, run.low, run.high);
        add_block(task, t, &keys, &tangents);
    }
    w->jvp->center(t->tile.width, Dv, attn_part(task, w->scratch.mu), attn_part(task, w->scratch.Ot),
                   attn_part(task, w->scratch.At));
}

void attn_tangent_store(const attn_task *task, const attn_gradient_tile *t, const attn_layout *layout, void *o,
                        const attn_layout *lse_layout, void *lse)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    w->kernel->store_columns(t->tile.width, t->tile.rows, p->shape.dim_v, 1, attn_part(task, w->scratch.At),
                             attn_query_row(task, o, layout, t->tile.first), layout->dtype, layout->stride[2]);
    for (int64_t i = 0; lse && i < t->tile.rows; i++) {
        void *to = attn_query_row(task, lse, lse_layout, t->tile.first + i);
        double mu = attn_real_at(attn_part(task, w->scratch.mu), w->compute, i);
        if (w->compute == ATTN_F32) *(float *)to = (float)mu;
        else *(double *)to = mu;
    }
}
