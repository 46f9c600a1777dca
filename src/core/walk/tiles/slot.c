/* SPDX-License-Identifier: MIT
 *
 * slot.c - the steps of forward for one query tile: score and fold what it sees of a block of keys, merge parts of the keys, and
 * finish.
 */
#include "slot.h"

#include <math.h>
#include <string.h>

#include "../../base/names.h"
#include "../../tile/relative.h"
#include "../../tile/runs.h"
#include "outputs.h"

attn_slot attn_slot_at(const attn_task *task, int64_t t, int64_t number)
{
    const attn_forward_walk *plan = attn_forward_of(task->walk);
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    attn_slot s;
    s.task = task;
    s.tile = attn_tile_at(task->walk, t);
    s.tile.place = number;
    /* Packed sequences have no rows past their end; padded ones have, which see no key. */
    if (attn_is_packed(&task->walk->problem) || task->visibility.of_other_walk)
        s.tile.rows = attn_clamp(task->visibility.len_q - s.tile.first, 0, s.tile.rows);
    s.Qt = attn_part(task, at->Qt + number * at->Qt_bytes);
    s.Ot = attn_part(task, plan->scratch.O + number * plan->scratch.O_bytes);
    s.m = attn_part(task, plan->scratch.m + number * at->lane_bytes);
    s.l = attn_part(task, plan->scratch.l + number * at->lane_bytes);
    s.keys = attn_tile_find_keys(&task->visibility, &s.tile);
    s.dropped = 0;
    s.empty = NULL;
    s.begun = 0;
    return s;
}

void attn_slot_start_with(const attn_task *task, const attn_slot *s, double sink)
{
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    task->walk->kernel.softmax->start(s->tile.width, task->walk->problem.shape.dim_v, sink, s->m, s->l, s->Ot);
    if (attn_is_elementwise(&task->walk->problem)) memset(s->m, 0, (size_t)at->lane_bytes); /* m stays 0 */
}

void attn_slot_start(const attn_task *task, const attn_slot *s) { attn_slot_start_with(task, s, attn_task_sink(task)); }

static int score(const attn_task *task, const attn_slot *s, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    int found = attn_task_score(task, &s->tile, s->Qt, keys, NULL, NULL);
    if (s->empty) {
        int64_t n = keys->high - keys->low;
        w->kernel.modify->unmask_empty(s->tile.width, n, attn_part(task, at->S), s->empty);
        w->kernel.modify->block_max(s->tile.width, n, attn_part(task, at->S), attn_part(task, at->block_max));
    }
    return found;
}

/* found: what score returned. */
static void fold(const attn_task *task, const attn_slot *s, const attn_keys *keys, int found, int nan_safe)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_kernel *k = &w->kernel;
    const attn_score *how = &w->problem.score;
    void *S = attn_part(task, at->S), *scratch = attn_part(task, at->modifiers);
    const int64_t n = keys->high - keys->low, dim_v = w->problem.shape.dim_v, ldv = keys->ldv;
    const int width = s->tile.width;
    _Alignas(64) char scratch_of_factor[ATTN_MAX_LANES * sizeof(double)];
    void *factor = NULL;
    attn_drop storage;
    const attn_drop *drop = attn_task_drop(task, &s->tile, keys->low, &storage);
    /* What comes next is the block of keys after this one; an address past the end is only a hint. */
    const void *next = (const void *)((uintptr_t)keys->K + (uintptr_t)(n * keys->ldk) * attn_dtype_bytes(w->compute));
    int64_t next_ld = keys->ldk;
    if (!nan_safe) attn_task_prefetch(task, n, &next, &next_ld);
    else memcpy(scratch, S, (size_t)(n * w->tile_q) * attn_dtype_bytes(w->compute)); /* the scores tell which keys are dropped */

    if (attn_is_elementwise(&w->problem)) {
        k->elementwise->weights(how->normaliser, how->shift, width, n, S, drop, s->l);
    } else {
        factor = scratch_of_factor;
        k->softmax->exponentiate(width, n, S, attn_part(task, at->block_max), drop, s->m, s->l, factor);
    }
    if (nan_safe) k->product->values_nan_safe(width, n, dim_v, S, scratch, drop != NULL, keys->V, ldv, factor, s->Ot);
    else if (factor && found & ATTN_SCORE_SEGMENTS)
        k->product->values_seen(width, n, dim_v, S, keys->V, ldv, factor, s->Ot, attn_part(task, at->low),
                                attn_part(task, at->high), next, next_ld);
    else k->product->values(width, n, dim_v, S, keys->V, ldv, factor, s->Ot, next, next_ld);
    if (w->problem.has.relative_values) attn_relative_absorb(task, &s->tile, keys, ATTN_RELATIVE_VALUES, S, nan_safe, s->Ot);
}

/* The slot's next run of keys from run->high on, below `high`. */
static int next_run(const attn_slot *s, int64_t high, attn_interval *run)
{
    return attn_task_run(s->task, &s->tile, attn_max(run->high, s->keys.low), attn_min(high, s->keys.high), run);
}

/* If only the first queries of a tile see a run, being global: the slot without the other vectors, in *storage. */
static const attn_slot *slot_of_run(const attn_slot *s, const attn_interval *run, attn_slot *storage)
{
    const attn_tile_visibility *visible = &s->tile.visible;
    if (visible->global_rows == 0 || (run->low < visible->others.high && visible->others.low < run->high)) return s;
    const int64_t lanes = s->task->walk->kernel.lanes;
    *storage = *s;
    storage->tile.width = (int)attn_ceil_div(visible->global_rows, lanes);
    storage->tile.rows = attn_min(storage->tile.rows, storage->tile.width * lanes);
    return storage;
}

/* Folds what the slot sees of a block, starting with `run`. */
static void fold_block(attn_slot *s, const attn_keys *block, attn_interval run)
{
    attn_slot storage;
    do {
        attn_keys keys = attn_keys_within(s->task, block, run.low, run.high);
        const attn_slot *part = slot_of_run(s, &run, &storage);
        const int found = score(s->task, part, &keys);
        s->dropped |= found != 0;
        fold(s->task, part, &keys, found, 0);
    } while (next_run(s, block->high, &run));
}

/* ---- parts of the keys ---- */

int64_t attn_slot_beyond_gap(const attn_slot *s, int64_t j) { return attn_beyond_gap(&s->tile.visible, attn_max(j, s->keys.low)); }

int attn_slot_open_part(const attn_slot *s, int64_t part, attn_slot *own)
{
    const attn_forward_walk *plan = attn_forward_of(s->task->walk);
    const attn_tile_scratch *at = &attn_tiles_of(s->task->walk)->scratch;
    const int64_t part_kv = plan->part_kv, low = s->empty ? part * part_kv : attn_slot_beyond_gap(s, part * part_kv);
    const int64_t high = attn_min((part + 1) * part_kv, s->keys.high);
    *own = *s;
    own->keys.low = own->keys.high = 0;
    if (low >= high) return 0;
    own->keys.low = low;
    own->keys.high = high;
    if (!s->begun && (part == 0 || !attn_has_sink(&s->task->walk->problem))) return 1;
    own->Ot = attn_part(s->task, plan->scratch.part + s->tile.place * (plan->scratch.O_bytes + 2 * at->lane_bytes));
    own->m = (char *)own->Ot + plan->scratch.O_bytes;
    own->l = (char *)own->m + at->lane_bytes;
    attn_slot_start_with(s->task, own, -INFINITY);
    return 1;
}

void attn_slot_close_part(attn_slot *s, const attn_slot *own)
{
    const attn_walk *w = s->task->walk;
    s->dropped |= own->dropped;
    s->begun = 1;
    if (own->Ot != s->Ot)
        w->kernel.softmax->merge(s->tile.width, w->problem.shape.dim_v, own->m, own->l, own->Ot, s->m, s->l, s->Ot);
}

/* Recomputes all blocks of a tile whose O is not finite although keys were dropped, since 0 * NaN must not leak; or which has
 * fully masked lanes, whose weights must be uniform.  In the same parts as before, so that correct rows keep their bits. */
static void repeat_nan_safe(const attn_task *task, attn_slot *s)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    attn_slot_start(task, s);
    s->begun = 0;
    for (int64_t part = s->keys.low / plan->part_kv; part * plan->part_kv < s->keys.high; part++) {
        attn_slot own;
        if (!attn_slot_open_part(s, part, &own)) continue;
        attn_interval run = {own.keys.low, own.keys.low};
        while (attn_task_next(task, &own.tile, own.empty != NULL, own.keys.high, &run)) {
            attn_keys keys = attn_task_keys(task, run.low, run.high);
            fold(task, &own, &keys, score(task, &own, &keys), 1);
        }
        attn_slot_close_part(s, &own);
    }
}

static void finish(const attn_task *task, const attn_slot *s)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    double keep = p->dropout.probability < 1 ? 1 / (1 - p->dropout.probability) : 0;
    const attn_layout *lse_layout = &p->at.lse;
    void *lse = p->has.lse ? attn_query_row(task, task->args->lse, lse_layout, s->tile.first) : NULL;
    if (keep == 0) memset(s->Ot, 0, (size_t)(p->shape.dim_v * w->tile_q) * attn_dtype_bytes(w->compute)); /* not -0 */
    w->kernel.softmax->finish(s->tile.width, s->tile.rows, p->shape.dim_v, keep, s->m, s->l, s->Ot,
                              attn_query_row(task, task->args->o, &p->at.o, s->tile.first), p->at.o.dtype, p->at.o.stride[2], lse,
                              lse_layout->stride[2]);
}

/* lse is -infinity for a fully masked row, whatever its weights, and past the sequence's end, where it would include a sink. */
static void mark_empty(const attn_task *task, const attn_slot *s)
{
    const attn_resolved *p = &task->walk->problem;
    for (int64_t i = 0; p->has.lse && i < s->tile.rows; i++) {
        void *lse = attn_query_row(task, task->args->lse, &p->at.lse, s->tile.first + i);
        if (!(s->empty && s->empty[i]) && s->tile.first + i < task->visibility.len_q) continue;
        if (task->walk->compute == ATTN_F32) *(float *)lse = -(float)INFINITY;
        else *(double *)lse = -(double)INFINITY;
    }
}

/* Finds the lanes that see no key, except rows past the sequence's end. */
static int find_empty(const attn_task *task, const attn_slot *s, int32_t *empty)
{
    int any = 0;
    if (!task->walk->kernel.softmax->find_empty(s->tile.width, s->tile.rows, s->l, empty)) return 0;
    for (int64_t i = 0; i < s->tile.width * task->walk->kernel.lanes; i++) {
        empty[i] = empty[i] && s->tile.first + i < task->visibility.len_q;
        any |= empty[i];
    }
    return any;
}

void attn_slot_finish(attn_slot *s, char *shared)
{
    const attn_task *task = s->task;
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_resolved *p = &w->problem;
    int32_t *empty = attn_part(task, plan->scratch.empty);
    int repeat = 0;
    /* The corners of a band belong to no pair, and their rows are multiplied by 0. */
    if (s->dropped || attn_drops_weights(p) || p->has.relative_values)
        repeat = w->kernel.softmax->not_finite(s->tile.width, s->tile.rows, p->shape.dim_v, s->Ot);
    if (p->mask.empty == ATTN_EMPTY_UNIFORM && find_empty(task, s, empty)) {
        s->empty = empty;
        s->keys.low = 0;
        s->keys.high = attn_keys_are_packed(p) ? task->visibility.len_kv : p->shape.len_kv;
        attn_task_pack(task, &s->tile, s->Qt);
        repeat = 1;
    }
    if (repeat) repeat_nan_safe(task, s);
    if (p->score.normaliser == ATTN_NORMALISER_SIGMOID) w->kernel.elementwise->clamp_denominator(s->tile.width, s->l);
    finish(task, s);
    if (s->empty || attn_has_sink(p)) mark_empty(task, s);
    if (!plan->outputs) return;
    attn_finished done = {&s->tile, s->Qt, s->m, s->l, s->keys, s->empty};
    attn_outputs_of_tile(task, &done, shared);
}

int attn_slot_open(const attn_task *task, attn_slot *s)
{
    if (s->tile.rows == 0) return 0;
    attn_slot_start(task, s);
    if (s->keys.low < s->keys.high) attn_task_pack(task, &s->tile, s->Qt);
    return 1;
}

/* The first key from j on that one of the slots may see. */
static int64_t beyond_gaps(const attn_slot *slots, int64_t count, int64_t j)
{
    int64_t next = INT64_MAX;
    for (int64_t t = 0; t < count; t++)
        if (j < slots[t].keys.high) next = attn_min(next, attn_slot_beyond_gap(&slots[t], j));
    return next;
}

static int64_t last_of(const attn_slot *slots, int64_t count)
{
    int64_t high = 0;
    for (int64_t t = 0; t < count; t++) high = attn_max(high, slots[t].keys.high);
    return high;
}

void attn_slots_fold(attn_slot *slots, int64_t count)
{
    const attn_walk *w = slots[0].task->walk;
    const int64_t high = last_of(slots, count);
    int64_t end;
    for (int64_t j = beyond_gaps(slots, count, 0); j < high; j = beyond_gaps(slots, count, end)) {
        attn_interval run[ATTN_MAX_TILES];
        int needed[ATTN_MAX_TILES], any = 0;
        end = attn_block_end(w, j, high);
        for (int64_t t = 0; t < count; t++) {
            run[t].high = j;
            any |= needed[t] = next_run(&slots[t], end, &run[t]);
        }
        if (!any) continue;
        attn_keys block = attn_task_keys(slots[0].task, j, end);
        for (int64_t t = 0; t < count; t++)
            if (needed[t]) fold_block(&slots[t], &block, run[t]);
    }
}

void attn_slots_fold_parts(attn_slot *slots, int64_t count)
{
    const attn_walk *w = slots[0].task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const int64_t high = last_of(slots, count);
    int64_t part;
    if (plan->parts == 1) {
        attn_slots_fold(slots, count);
        return;
    }
    for (int64_t j = beyond_gaps(slots, count, 0); j < high; j = beyond_gaps(slots, count, (part + 1) * plan->part_kv)) {
        attn_slot own[ATTN_MAX_TILES];
        int open[ATTN_MAX_TILES];
        part = j / plan->part_kv;
        for (int64_t t = 0; t < count; t++) open[t] = attn_slot_open_part(&slots[t], part, &own[t]);
        attn_slots_fold(own, count);
        for (int64_t t = 0; t < count; t++)
            if (open[t]) attn_slot_close_part(&slots[t], &own[t]);
    }
}
