/* SPDX-License-Identifier: MIT
 * gradient.c - a query tile of backward, and dS of one block. */
#include "gradient.h"

#include <math.h>

#include "../base/names.h"
#include "runs.h"

static void put_real(void *array, attn_dtype dtype, int64_t i, double x)
{
    if (dtype == ATTN_F32) ((float *)array)[i] = (float)x;
    else ((double *)array)[i] = x;
}

/* Rows that weigh all keys alike: their lse becomes the log of how many there are. */
static void find_empty(const attn_task *task, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_problem *p = &w->problem;
    int32_t *empty = attn_part(task, w->scratch.empty);
    int64_t all = p->mask.packed ? task->sight.len_kv : p->shape.len_kv;
    int any = 0;
    for (int64_t i = 0; i < t->tile.width * w->kernel->lanes; i++) {
        int64_t row = t->tile.first + attn_min(i, t->tile.rows - 1);
        const void *lse = attn_query_row(task, task->args->lse, &p->want.lse_layout, row);
        empty[i] = row < task->sight.len_q && attn_real_at(lse, w->compute, 0) == -INFINITY;
        if (!empty[i]) continue;
        any = 1;
        put_real(attn_part(task, w->scratch.m), w->compute, i, log((double)all));
    }
    if (!any) return;
    t->empty = empty;
    t->keys.low = 0;
    t->keys.high = all;
}

int attn_gradient_tile_open(const attn_task *task, int64_t number, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_problem *p = &w->problem;
    const attn_scratch *at = &w->scratch;
    const attn_args *a = task->args;
    const int64_t D = p->shape.dim_qk, Dv = p->shape.dim_v;

    t->tile = attn_tile_at(w, number);
    if (p->mask.packed) t->tile.rows = attn_clamp(task->sight.len_q - t->tile.first, 0, t->tile.rows);
    if (t->tile.rows == 0) return 0;
    t->keys = attn_tile_look(&task->sight, &t->tile);
    t->dropped = 0;
    t->empty = NULL;

    const int width = t->tile.width;
    const int64_t rows = t->tile.rows, first = t->tile.first;
    const attn_layout *lse = &p->want.lse_layout, *dO = &p->gradients.grad_o;
    const void *q = attn_query_row(task, a->q, &p->q, first), *o = attn_query_row(task, a->o, &p->o, first);
    void *Qt = attn_part(task, at->Qt), *dOt = attn_part(task, at->dOt), *Ot = attn_part(task, at->Ot);
    void *Q_panels = attn_part(task, at->Q_panels), *dO_panels = attn_part(task, at->dO_panels);

    w->kernel->pack_query(width, rows, D, q, p->q.dtype, p->q.stride[2], attn_task_scale(task), Qt);
    w->kernel->pack_query(width, rows, Dv, o, p->o.dtype, p->o.stride[2], 1, Ot);
    if (p->op == ATTN_JVP) {
        w->backward->delta(width, rows, 0, dOt, Ot, attn_query_row(task, a->lse, lse, first), lse->stride[2], NULL,
                           task->sight.len_q - first, attn_part(task, at->l), attn_part(task, at->m));
        if (p->mask.empty == ATTN_EMPTY_UNIFORM) find_empty(task, t);
        return 1;
    }
    const void *grad_o = attn_query_row(task, a->grad_o, dO, first);
    w->kernel->pack_query(width, rows, Dv, grad_o, dO->dtype, dO->stride[2], 1, dOt);
    w->backward->pack_rows(rows, D, q, p->q.dtype, p->q.stride[2], attn_task_scale(task), Q_panels);
    w->backward->pack_rows(rows, Dv, grad_o, dO->dtype, dO->stride[2], 1, dO_panels);
    t->careful_queries = w->backward->panels_not_finite(rows, D, Q_panels) || w->backward->panels_not_finite(rows, Dv, dO_panels);
    w->backward->delta(width, rows, Dv, dOt, Ot, attn_query_row(task, a->lse, lse, first), lse->stride[2],
                       p->gradients.lse ? attn_query_row(task, a->grad_lse, lse, first) : NULL, task->sight.len_q - first,
                       attn_part(task, at->l), attn_part(task, at->m));
    if (p->mask.empty == ATTN_EMPTY_UNIFORM) find_empty(task, t);
    return 1;
}

int attn_gradient_next(const attn_task *task, const attn_gradient_tile *t, attn_interval *run)
{
    return attn_task_next(task, &t->tile, t->empty != NULL, t->keys.high, run);
}

void attn_gradient_block(const attn_task *task, attn_gradient_tile *t, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    const attn_problem *p = &w->problem;
    const attn_scratch *at = &w->scratch;
    const int64_t n = keys->high - keys->low;
    void *S = attn_part(task, at->S), *dP = attn_part(task, at->dP);
    void *slope = p->score.softcap > 0 ? attn_part(task, at->slope) : NULL;
    double keep = p->dropout.probability < 1 ? 1 / (1 - p->dropout.probability) : 0;
    attn_drop room;

    t->dropped = attn_task_score(task, &t->tile, attn_part(task, at->Qt), keys, slope);
    if (t->empty) w->kernel->revive(t->tile.width, n, S, t->empty);
    w->kernel->score(t->tile.width, n, p->shape.dim_v, attn_part(task, at->dOt), keys->V, keys->ldv, dP,
                     attn_part(task, at->block_max), keys->K, keys->ldk);
    w->backward->gradient(t->tile.width, n, S, dP, attn_part(task, at->m), attn_part(task, at->l),
                          attn_task_drop(task, &t->tile, keys->low, &room), keep, attn_part(task, at->scratch));
    if (t->empty) w->kernel->revive(t->tile.width, n, dP, t->empty); /* their weights depend on nothing */
}
