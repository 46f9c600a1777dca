/* SPDX-License-Identifier: MIT
 * gradient.c - a query tile of backward, and dS of one block. */
#include "gradient.h"

#include <math.h>

#include "../base/names.h"
#include "../tile/relative.h"
#include "../tile/runs.h"

static void put_real(void *array, attn_dtype dtype, int64_t i, double x)
{
    if (dtype == ATTN_F32) ((float *)array)[i] = (float)x;
    else ((double *)array)[i] = x;
}

/* Fully masked rows with uniform weights: their lse becomes the log of the number of keys. */
static void find_empty(const attn_task *task, int64_t slot, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_gradient_scratch *own = &attn_gradient_of(w)->scratch;
    const attn_resolved *p = &w->problem;
    int32_t *empty = (int32_t *)attn_part(task, own->empty) + slot * w->tile_q;
    int64_t all = attn_keys_are_packed(p) ? task->visibility.len_kv : p->shape.len_kv;
    int any = 0;
    for (int64_t i = 0; i < t->tile.width * w->kernel.lanes; i++) {
        int64_t row = t->tile.first + attn_min(i, t->tile.rows - 1);
        const void *lse = attn_query_row(task, task->args->lse, &p->at.lse, row);
        empty[i] = row < task->visibility.len_q && attn_real_at(lse, w->compute, 0) == -INFINITY;
        if (!empty[i]) continue;
        any = 1;
        put_real(t->lse, w->compute, i, log((double)all));
    }
    if (!any) return;
    t->empty = empty;
    t->keys.low = 0;
    t->keys.high = all;
}

/* The keys that each vector sees; vectors of few lanes are not worth a separate part. */
static void find_seen(const attn_task *task, attn_gradient_tile *t)
{
    const int64_t lanes = task->walk->kernel.lanes, rows = t->tile.rows;
    for (int v = 0; v < t->tile.width; v++) {
        t->seen[v] = t->keys;
        if (lanes < 8 || t->empty || task->walk->problem.reproducible) continue; /* parts of a tile would be separate sums */
        attn_tile_visibility visible =
            attn_visibility_of_tile(&task->visibility, t->tile.first + v * lanes, attn_clamp(rows - v * lanes, 0, lanes));
        t->seen[v] = attn_keys_of_tile(&visible);
    }
}

/* The tile, its queries, its rows of O, and the places of lse and delta. */
static int open_rows(const attn_task *task, int64_t number, int64_t slot, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_gradient_scratch *own = &attn_gradient_of(w)->scratch;
    const attn_layout *o = &p->at.o;
    t->tile = attn_tile_of(w, &task->visibility, number);
    t->tile.place = slot;
    if (p->has.cu_seqlens_q) t->tile.rows = attn_clamp(task->visibility.len_q - t->tile.first, 0, t->tile.rows);
    if (t->tile.rows == 0) return 0;
    t->keys = attn_tile_find_keys(&task->visibility, &t->tile);
    t->dropped = 0;
    t->empty = NULL;
    t->Qt = (char *)attn_part(task, at->Qt) + slot * at->Qt_bytes;
    t->lse = (char *)attn_part(task, own->lse) + slot * at->lane_bytes;
    t->delta = (char *)attn_part(task, own->delta) + slot * at->lane_bytes;
    attn_task_pack(task, &t->tile, t->Qt);
    w->kernel.storage->pack_query(t->tile.width, t->tile.rows, p->shape.dim_v,
                                  attn_query_row(task, task->args->o, o, t->tile.first), o->dtype, o->stride[2], 1,
                                  attn_part(task, own->O));
    return 1;
}

int attn_gradient_tile_open_rows(const attn_task *task, int64_t number, int64_t slot, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_layout *lse = &p->at.lse;
    if (!open_rows(task, number, slot, t)) return 0;
    const void *O = attn_part(task, attn_gradient_of(w)->scratch.O);
    const int64_t first = t->tile.first;
    w->kernel.gradient->delta(t->tile.width, t->tile.rows, 0, O, O, attn_query_row(task, task->args->lse, lse, first),
                              lse->stride[2], NULL, 0, task->visibility.len_q - first, t->delta, t->lse);
    if (p->mask.empty == ATTN_EMPTY_UNIFORM) find_empty(task, slot, t);
    return 1;
}

int attn_gradient_tile_open(const attn_task *task, int64_t number, int64_t slot, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_sum_walk *plan = attn_sums_of(w);
    const attn_args *a = task->args;
    const int64_t D = p->shape.dim_qk, Dv = p->shape.dim_v;
    if (!open_rows(task, number, slot, t)) return 0;
    t->dOt = (char *)attn_part(task, plan->dOt) + slot * plan->dOt_bytes;
    t->dQt = (char *)attn_part(task, plan->dQt) + slot * attn_tiles_of(w)->scratch.Qt_bytes;
    t->Q_panels = (char *)attn_part(task, plan->Q_panels) + slot * plan->panel_bytes;
    t->dO_panels = (char *)attn_part(task, plan->dO_panels) + slot * plan->panel_bytes;

    const int width = t->tile.width;
    const int64_t rows = t->tile.rows, first = t->tile.first;
    const attn_layout *lse = &p->at.lse, *grad_lse = &p->at.grad_lse, *dO = &p->at.grad_o;
    const void *q = attn_query_row(task, a->q, &p->at.q, first);
    void *Ot = attn_part(task, attn_gradient_of(w)->scratch.O);
    const void *grad_o = attn_query_row(task, a->grad_o, dO, first);
    w->kernel.storage->pack_query(width, rows, Dv, grad_o, dO->dtype, dO->stride[2], 1, t->dOt);
    t->nan_safe_queries = !attn_is_additive(p) && !w->kernel.outer->pack_rows(rows, D, q, p->at.q.dtype, p->at.q.stride[2],
                                                                              attn_task_scale(task), t->Q_panels);
    if (attn_tiles_of(w)->relative.two)
        t->nan_safe_queries |=
            !w->kernel.outer->pack_rows(rows, D, attn_query_row(task, a->relative_v, &p->at.q, first), p->at.q.dtype,
                                        p->at.q.stride[2], attn_task_scale(task), t->Q_panels + plan->relative.Q_panels);
    t->nan_safe_queries |= !w->kernel.outer->pack_rows(rows, Dv, grad_o, dO->dtype, dO->stride[2], 1, t->dO_panels);
    w->kernel.gradient->delta(width, rows, Dv, t->dOt, Ot, attn_query_row(task, a->lse, lse, first), lse->stride[2],
                              p->has.grad_lse ? attn_query_row(task, a->grad_lse, grad_lse, first) : NULL, grad_lse->stride[2],
                              task->visibility.len_q - first, t->delta, t->lse);
    if (w->kernel.pairs) w->kernel.pairs->pack_query(width, rows, Dv, grad_o, dO->stride[2], t->dOt); /* delta used the plain one */
    if (p->mask.empty == ATTN_EMPTY_UNIFORM) find_empty(task, slot, t);
    find_seen(task, t);
    return 1;
}

/* The tile without the vectors before `first` and from first + width on. */
static void narrow(const attn_task *task, int first, int width, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const int64_t lanes = first * w->kernel.lanes, size = (int64_t)attn_dtype_bytes(w->compute);
    t->tile.first += lanes;
    t->tile.rows = attn_clamp(t->tile.rows - lanes, 0, width * w->kernel.lanes);
    t->tile.width = width;
    attn_tile_find_keys(&task->visibility, &t->tile);
    char **buffers[] = {&t->Qt, &t->dOt, &t->lse, &t->delta, &t->dQt};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) *buffers[i] += lanes * size;
    t->Q_panels += lanes * w->tile_q * size;
    t->dO_panels += lanes * w->tile_q * size;
}

int64_t attn_gradient_tile_part(const attn_task *task, const attn_gradient_tile *t, int64_t j, int64_t high,
                                attn_gradient_tile *part)
{
    int first = 0, last = -1; /* vectors in between that do not see key j are masked */
    for (int v = 0; v < t->tile.width; v++) {
        const attn_interval *seen = &t->seen[v];
        if (seen->low > j) {
            high = attn_min(high, seen->low);
        } else if (seen->high > j) {
            high = attn_min(high, seen->high);
            if (last < 0) first = v;
            last = v;
        }
    }
    *part = *t;
    if (last - first + 1 < t->tile.width) narrow(task, first, last - first + 1, part);
    return high;
}

int attn_gradient_next(const attn_task *task, const attn_gradient_tile *t, attn_interval *run)
{
    return attn_task_next(task, &t->tile, t->empty != NULL, t->keys.high, run);
}

int attn_gradient_run(const attn_task *task, const attn_gradient_tile *t, int64_t high, attn_interval *run)
{
    const int64_t low = attn_max(run->high, t->keys.low);
    high = attn_min(high, t->keys.high);
    if (!t->empty) return attn_task_run(task, &t->tile, low, high, run);
    run->low = low;
    run->high = high;
    return low < high;
}

/* dP = V dO^T */
static void score_values(const attn_task *task, const attn_gradient_tile *t, const attn_keys *keys, void *dP)
{
    const attn_walk *w = task->walk;
    const attn_kernel *k = &w->kernel;
    const int64_t n = keys->high - keys->low, Dv = w->problem.shape.dim_v;
    const attn_prefetch_hint nothing = {0};
    void *most = attn_part(task, attn_tiles_of(w)->scratch.block_max);
    if (k->pairs) k->pairs->score(t->tile.width, n, Dv, t->dOt, keys->V, 1, dP, most, keys->K_wide, keys->ldk_wide, &nothing);
    else k->product->score(t->tile.width, n, Dv, t->dOt, keys->V, keys->ldv, dP, most, keys->K_wide, keys->ldk_wide);
}

void attn_gradient_block(const attn_task *task, attn_gradient_tile *t, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const int64_t n = keys->high - keys->low;
    void *S = attn_part(task, at->S), *dP = attn_part(task, attn_sums_of(w)->dP);
    void *slope = p->score.softcap > 0 ? attn_part(task, attn_gradient_of(w)->scratch.slope) : NULL;
    double keep = p->dropout.probability < 1 ? 1 / (1 - p->dropout.probability) : 0;
    attn_drop storage;

    t->dropped = attn_task_score(task, &t->tile, t->Qt, keys, slope, NULL);
    if (t->empty) w->kernel.modify->unmask_empty(t->tile.width, n, S, t->empty);
    score_values(task, t, keys, dP);
    if (p->has.relative_values) attn_relative_add(task, &t->tile, keys, ATTN_RELATIVE_VALUES, t->dOt, dP);
    const attn_drop *drop = attn_task_drop(task, &t->tile, keys->low, &storage);
    if (attn_is_elementwise(p))
        w->kernel.elementwise->gradient(p->score.normaliser, p->score.shift, t->tile.width, n, S, dP, t->lse, drop, keep,
                                        attn_part(task, at->modifiers));
    else w->kernel.gradient->gradient(t->tile.width, n, S, dP, t->lse, t->delta, drop, keep, attn_part(task, at->modifiers));
    if (t->empty) w->kernel.modify->unmask_empty(t->tile.width, n, dP, t->empty); /* their weights depend on nothing */
}
