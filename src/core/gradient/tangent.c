/* SPDX-License-Identifier: MIT
 * tangent.c - forward mode of one query tile: A = sum W (Sd v + vd) and mu = sum P Sd over its keys, then the tangent of O is A -
 * mu O. */
#include "tangent.h"

#include <string.h>

#include "../base/names.h"

void attn_tangents_begin(attn_tangents *plan, const attn_walk *walk)
{
    const attn_resolved *p = &walk->problem;
    plan->compact_k = p->has.tan_k && attn_must_compact(walk, &p->at.tan_k, p->shape.dim_qk);
    plan->compact_v = p->has.tan_v && attn_must_compact(walk, &p->at.tan_v, p->shape.dim_v);
}

int attn_tangents_lay_out(attn_tangents *plan, attn_walk *walk)
{
    const int64_t D = walk->problem.shape.dim_qk, Dv = walk->problem.shape.dim_v, n = walk->block_kv, q = walk->tile_q;
    const size_t size = attn_dtype_bytes(walk->compute);
    const attn_part_of parts[] = {
        {&plan->Qt, D, q, size},
        {&plan->O, Dv, q, size},
        {&plan->mu, 1, q, size},
        {&plan->S, n, q, size},
        {&plan->other, n, q, size},
        {&plan->K, plan->compact_k ? n : 0, D, size},
        {&plan->V, plan->compact_v ? n : 0, Dv, size},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->worker_bytes);
}

attn_keys attn_tangents_of_keys(const attn_tangents *plan, const attn_task *task, int64_t low, int64_t high)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const int64_t D = w->problem.shape.dim_qk, Dv = w->problem.shape.dim_v;
    attn_keys keys = {.low = low, .high = high};
    const attn_key_rows k = {task->args->tan_k, &p->at.tan_k, NULL, NULL, 0}, v = {task->args->tan_v, &p->at.tan_v, NULL, NULL, 0};
    if (p->has.tan_k) keys.K = attn_rows_of_keys(task, &k, D, plan->compact_k, plan->K, low, high, &keys.ldk);
    if (p->has.tan_v) keys.V = attn_rows_of_keys(task, &v, Dv, plan->compact_v, plan->V, low, high, &keys.ldv);
    return keys;
}

void attn_tangent_open(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_layout *q = &p->at.tan_q;
    if (!p->has.tan_q) return;
    w->kernel.storage->pack_query(t->tile.width, t->tile.rows, p->shape.dim_qk,
                                  attn_query_row(task, task->args->tan_q, q, t->tile.first), q->dtype, q->stride[2],
                                  attn_task_scale(task), attn_part(task, plan->Qt));
}

void attn_tangent_scores(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *t, const attn_keys *keys,
                         const attn_keys *tangents, void *before)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_gradient_scratch *own = &attn_gradient_of(w)->scratch;
    const int64_t n = keys->high - keys->low, D = p->shape.dim_qk;
    const size_t bytes = (size_t)(n * w->tile_q) * attn_dtype_bytes(w->compute);
    void *Sd = attn_part(task, plan->S), *other = attn_part(task, plan->other), *stale = attn_part(task, at->block_max);

    if (p->has.tan_q)
        w->kernel.product->score(t->tile.width, n, D, attn_part(task, plan->Qt), keys->K, keys->ldk, Sd, stale, keys->V, keys->ldv);
    else memset(Sd, 0, bytes);
    if (p->has.tan_k) {
        w->kernel.product->score(t->tile.width, n, D, attn_part(task, at->Qt), tangents->K, tangents->ldk, other, stale, keys->V,
                                 keys->ldv);
        w->kernel.tangent->add_tangents(t->tile.width, n, Sd, other);
    }
    if (before) memcpy(before, Sd, bytes);
    if (p->score.softcap > 0) w->kernel.gradient->multiply(t->tile.width, n, Sd, attn_part(task, own->slope));
    if (p->has.modifier) {
        attn_task_slopes(task, &t->tile, keys, NULL, 0);
        w->kernel.gradient->multiply(t->tile.width, n, Sd, attn_part(task, at->modifiers));
    }
    if (p->has.tan_bias) {
        attn_block bias = {attn_pair_at(task, task->args->tan_bias, &p->at.tan_bias, t->tile.first, keys->low),
                           p->at.tan_bias.dtype, p->at.tan_bias.stride[2], p->at.tan_bias.stride[3]};
        w->kernel.modify->add_bias(t->tile.width, t->tile.rows, n, Sd, stale, &bias, attn_part(task, at->modifiers));
    }
    if (t->empty) w->kernel.modify->unmask_empty(t->tile.width, n, Sd, t->empty); /* their weights depend on nothing */
}

/* At += X^T (rows of V).  Rows of V that may hold NaN are not read where X is 0. */
static void add_values(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *t, int64_t n, const void *X,
                       const void *V, int64_t ldv)
{
    const attn_walk *w = task->walk;
    const int64_t Dv = w->problem.shape.dim_v;
    int nan_safe = (t->dropped || attn_drops_weights(&w->problem)) && w->kernel.outer->rows_not_finite(n, Dv, V, ldv);
    (nan_safe ? w->kernel.product->add_values_nan_safe : w->kernel.product->add_values)(t->tile.width, n, Dv, X, V, ldv,
                                                                                        attn_part(task, plan->O));
}

static void add_block(const attn_tangents *plan, const attn_task *task, attn_gradient_tile *t, const attn_keys *keys,
                      const attn_keys *tangents)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_gradient_scratch *own = &attn_gradient_of(w)->scratch;
    const int64_t n = keys->high - keys->low;
    void *S = attn_part(task, at->S), *Sd = attn_part(task, plan->S);
    double keep = p->dropout.probability < 1 ? 1 / (1 - p->dropout.probability) : 0;
    attn_drop storage;

    t->dropped = attn_task_score(task, &t->tile, attn_part(task, at->Qt), keys,
                                 p->score.softcap > 0 ? attn_part(task, own->slope) : NULL, NULL);
    if (t->empty) w->kernel.modify->unmask_empty(t->tile.width, n, S, t->empty);
    attn_tangent_scores(plan, task, t, keys, tangents, NULL);
    w->kernel.tangent->tangent(t->tile.width, n, S, Sd, attn_part(task, own->lse),
                               attn_task_drop(task, &t->tile, keys->low, &storage), keep, attn_part(task, plan->mu));
    add_values(plan, task, t, n, Sd, keys->V, keys->ldv);
    if (tangents->V) add_values(plan, task, t, n, S, tangents->V, tangents->ldv);
}

void attn_tangent_walk(const attn_tangents *plan, const attn_task *task, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_gradient_scratch *own = &attn_gradient_of(w)->scratch;
    const int64_t Dv = w->problem.shape.dim_v, lane_bytes = w->tile_q * (int64_t)attn_dtype_bytes(w->compute);
    memset(attn_part(task, plan->O), 0, (size_t)(Dv * lane_bytes));
    memset(attn_part(task, plan->mu), 0, (size_t)lane_bytes);
    for (attn_interval run = {t->keys.low, t->keys.low}; attn_gradient_next(task, t, &run);) {
        attn_keys keys = attn_task_keys(task, run.low, run.high);
        attn_keys tangents = attn_tangents_of_keys(plan, task, run.low, run.high);
        add_block(plan, task, t, &keys, &tangents);
    }
    w->kernel.tangent->center(t->tile.width, Dv, attn_part(task, plan->mu), attn_part(task, own->O), attn_part(task, plan->O));
}

void attn_tangent_store(const attn_tangents *plan, const attn_task *task, const attn_gradient_tile *t, const attn_layout *layout,
                        void *o, const attn_layout *lse_layout, void *lse)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    w->kernel.storage->store_columns(t->tile.width, t->tile.rows, p->shape.dim_v, 1, attn_part(task, plan->O),
                                     attn_query_row(task, o, layout, t->tile.first), layout->dtype, layout->stride[2]);
    for (int64_t i = 0; lse && i < t->tile.rows; i++) {
        void *to = attn_query_row(task, lse, lse_layout, t->tile.first + i);
        double mu = attn_real_at(attn_part(task, plan->mu), w->compute, i);
        if (w->compute == ATTN_F32) *(float *)to = (float)mu;
        else *(double *)to = mu;
    }
}
