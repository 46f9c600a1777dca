/* SPDX-License-Identifier: MIT
 *
 * forward.c - the walk of forward attention over tiles of (queries x keys).
 *
 *      for each task (a few query tiles of one head):
 *          for each block of keys that one of them sees:
 *              score     S = scale Q K^T                                  one product
 *              modify    softcap, bias, masks, visible range              only where a tile needs it
 *              fold      m, l, O absorb S and V                           the online softmax
 *          finish        O / l, lse, and what else is requested of the tile (outputs.c)
 *
 * Rows are independent of one another in every bit, so the order of tasks, the group and the workers are free.
 * The two ways to deal a head to tasks, by tiles and by parts of its keys, are one file of 500 lines since they share every step.
 */
#include <math.h>
#include <string.h>

#include "../../base/names.h"
#include "../../prepare/relative_prepare.h"
#include "../../threads/threads.h"
#include "../../tile/relative.h"
#include "../../tile/runs.h"
#include "outputs.h"
#include "tiles.h"

/* A query tile with its place in memory. */
typedef struct slot {
    const attn_task *task; /* of its head */
    attn_tile tile;
    void *Qt, *Ot, *m, *l;
    attn_interval keys;   /* that it visits */
    int dropped;          /* a key was dropped inside a visited block */
    const int32_t *empty; /* NULL, or the lanes that weigh all keys alike since they see none */
    int begun;            /* a part of the keys is in its state */
} slot;

static slot slot_at(const attn_task *task, int64_t t, int64_t number)
{
    const attn_forward_walk *plan = attn_forward_of(task->walk);
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    slot s;
    s.task = task;
    s.tile = attn_tile_at(task->walk, t);
    s.tile.place = number;
    /* Packed sequences end where they end; padded ones have rows after them, which see no key. */
    if (attn_is_packed(&task->walk->problem) || task->sight.of_others)
        s.tile.rows = attn_clamp(task->sight.len_q - s.tile.first, 0, s.tile.rows);
    s.Qt = attn_part(task, at->Qt + number * at->Qt_bytes);
    s.Ot = attn_part(task, plan->scratch.O + number * plan->scratch.O_bytes);
    s.m = attn_part(task, plan->scratch.m + number * at->lane_bytes);
    s.l = attn_part(task, plan->scratch.l + number * at->lane_bytes);
    s.keys = attn_tile_look(&task->sight, &s.tile);
    s.dropped = 0;
    s.empty = NULL;
    s.begun = 0;
    return s;
}

static void start_with(const attn_task *task, const slot *s, double sink)
{
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    task->walk->kernel->start(s->tile.width, task->walk->problem.shape.dim_v, sink, s->m, s->l, s->Ot);
    if (attn_weighs_alone(&task->walk->problem)) memset(s->m, 0, (size_t)at->lane_bytes); /* and stays */
}

static void start(const attn_task *task, const slot *s) { start_with(task, s, attn_task_sink(task)); }

static int score(const attn_task *task, const slot *s, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    int found = attn_task_score(task, &s->tile, s->Qt, keys, NULL, NULL);
    if (s->empty) {
        int64_t n = keys->high - keys->low;
        w->kernel->revive(s->tile.width, n, attn_part(task, at->S), s->empty);
        w->kernel->block_max(s->tile.width, n, attn_part(task, at->S), attn_part(task, at->block_max));
    }
    return found;
}

/* found: what score returned. */
static void fold(const attn_task *task, const slot *s, const attn_keys *keys, int found, int careful)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_fwd_kernel *k = w->kernel;
    const attn_score *how = &w->problem.score;
    void *S = attn_part(task, at->S), *block_max = attn_part(task, at->block_max);
    void *scratch = attn_part(task, at->modifiers);
    const int64_t n = keys->high - keys->low, dim_v = w->problem.shape.dim_v, ldv = keys->ldv;
    const int width = s->tile.width, alone = attn_weighs_alone(&w->problem);
    attn_drop room;
    const attn_drop *drop = attn_task_drop(task, &s->tile, keys->low, &room);
    /* What comes next is the block of keys after this one; an address past the end is only a hint. */
    const void *next = (const void *)((uintptr_t)keys->K + (uintptr_t)(n * keys->ldk) * attn_dtype_bytes(w->compute));
    int64_t next_ld = keys->ldk;
    if (!careful) attn_task_look_ahead(task, n, &next, &next_ld);

    if (alone && careful)
        k->alone.fold_careful(how->normaliser, how->shift, width, n, dim_v, S, drop, keys->V, ldv, s->l, s->Ot, scratch);
    else if (alone) k->alone.fold(how->normaliser, how->shift, width, n, dim_v, S, drop, keys->V, ldv, s->l, s->Ot, next, next_ld);
    else if (careful) k->fold_careful(width, n, dim_v, S, block_max, drop, keys->V, ldv, s->m, s->l, s->Ot, scratch);
    else if (found & ATTN_SCORE_STAIRS)
        k->fold_seen(width, n, dim_v, S, block_max, drop, keys->V, ldv, s->m, s->l, s->Ot, attn_part(task, at->low),
                     attn_part(task, at->high), next, next_ld);
    else k->fold(width, n, dim_v, S, block_max, drop, keys->V, ldv, s->m, s->l, s->Ot, next, next_ld);
    if (w->problem.has.relative_values) attn_relative_absorb(task, &s->tile, keys, ATTN_RELATIVE_VALUES, S, careful, s->Ot);
}

/* The slot's next run of keys from run->high on, below `high`. */
static int next_run(const slot *s, int64_t high, attn_interval *run)
{
    return attn_task_run(s->task, &s->tile, attn_max(run->high, s->keys.low), attn_min(high, s->keys.high), run);
}

/* Where only the first queries of a tile see a run, being global: the slot without the other vectors, in *room. */
static const slot *slot_of_run(const slot *s, const attn_interval *run, slot *room)
{
    const attn_view *view = &s->tile.view;
    if (view->global_rows == 0 || (run->low < view->others.high && view->others.low < run->high)) return s;
    const int64_t lanes = s->task->walk->kernel->lanes;
    *room = *s;
    room->tile.width = (int)attn_ceil_div(view->global_rows, lanes);
    room->tile.rows = attn_min(room->tile.rows, room->tile.width * lanes);
    return room;
}

/* What the slot sees of a block, which begins with `run`. */
static void fold_block(slot *s, const attn_keys *block, attn_interval run)
{
    slot room;
    do {
        attn_keys keys = attn_keys_within(s->task, block, run.low, run.high);
        const slot *part = slot_of_run(s, &run, &room);
        const int found = score(s->task, part, &keys);
        s->dropped |= found != 0;
        fold(s->task, part, &keys, found, 0);
    } while (next_run(s, block->high, &run));
}

/* ---- parts of the keys ---- */

/* The first key from j on that a slot may see. */
static int64_t beyond_gap(const slot *s, int64_t j) { return attn_beyond_gap(&s->tile.view, attn_max(j, s->keys.low)); }

/* The slot with the keys of one part, in a state of its own where it has to be merged: the first part is in the slot's, and so is
 * what it begins with, the sink.  Returns 0 if it sees none of them. */
static int open_part(const slot *s, int64_t part, slot *own)
{
    const attn_forward_walk *plan = attn_forward_of(s->task->walk);
    const attn_tile_scratch *at = &attn_tiles_of(s->task->walk)->scratch;
    const int64_t part_kv = plan->part_kv, low = s->empty ? part * part_kv : beyond_gap(s, part * part_kv);
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
    start_with(s->task, own, -INFINITY);
    return 1;
}

/* The slot takes in a part, where it does not have it already. */
static void close_part(slot *s, const slot *own)
{
    const attn_walk *w = s->task->walk;
    s->dropped |= own->dropped;
    s->begun = 1;
    if (own->Ot != s->Ot) w->kernel->merge(s->tile.width, w->problem.shape.dim_v, own->m, own->l, own->Ot, s->m, s->l, s->Ot);
}

/* All of one tile's blocks again.  For a tile whose O is not finite although keys were dropped, since 0 * NaN must not leak; and
 * for one with lanes that see no key and are to weigh all alike.  In the same parts as before, so that rows that were right keep
 * their bits. */
static void repeat_carefully(const attn_task *task, slot *s)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    start(task, s);
    s->begun = 0;
    for (int64_t part = s->keys.low / plan->part_kv; part * plan->part_kv < s->keys.high; part++) {
        slot own;
        if (!open_part(s, part, &own)) continue;
        attn_interval run = {own.keys.low, own.keys.low};
        while (attn_task_next(task, &own.tile, own.empty != NULL, own.keys.high, &run)) {
            attn_keys keys = attn_task_keys(task, run.low, run.high);
            fold(task, &own, &keys, score(task, &own, &keys), 1);
        }
        close_part(s, &own);
    }
}

static void finish(const attn_task *task, const slot *s)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    double keep = p->dropout.probability < 1 ? 1 / (1 - p->dropout.probability) : 0;
    const attn_layout *lse_layout = &p->at.lse;
    void *lse = p->has.lse ? attn_query_row(task, task->args->lse, lse_layout, s->tile.first) : NULL;
    w->kernel->finish(s->tile.width, s->tile.rows, p->shape.dim_v, keep, s->m, s->l, s->Ot,
                      attn_query_row(task, task->args->o, &p->at.o, s->tile.first), p->at.o.dtype, p->at.o.stride[2], lse,
                      lse_layout->stride[2]);
}

/* lse is -infinity for an empty row, whatever it weighs, and after the sequence's end, where a sink would be in it. */
static void mark_empty(const attn_task *task, const slot *s)
{
    const attn_resolved *p = &task->walk->problem;
    for (int64_t i = 0; p->has.lse && i < s->tile.rows; i++) {
        void *lse = attn_query_row(task, task->args->lse, &p->at.lse, s->tile.first + i);
        if (!(s->empty && s->empty[i]) && s->tile.first + i < task->sight.len_q) continue;
        if (task->walk->compute == ATTN_F32) *(float *)lse = -(float)INFINITY;
        else *(double *)lse = -(double)INFINITY;
    }
}

/* Lanes that see no key; rows after the sequence's end are none of them. */
static int find_empty(const attn_task *task, const slot *s, int32_t *empty)
{
    int any = 0;
    if (!task->walk->kernel->find_empty(s->tile.width, s->tile.rows, s->l, empty)) return 0;
    for (int64_t i = 0; i < s->tile.width * task->walk->kernel->lanes; i++) {
        empty[i] = empty[i] && s->tile.first + i < task->sight.len_q;
        any |= empty[i];
    }
    return any;
}

/* shared: what follows the workers' memory. */
static void finish_slot(slot *s, char *shared)
{
    const attn_task *task = s->task;
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_resolved *p = &w->problem;
    int32_t *empty = attn_part(task, plan->scratch.empty);
    int repeat = 0;
    /* A band has corners that no pair reads, and takes their rows times 0. */
    if (s->dropped || attn_drops_weights(p) || p->has.relative_values)
        repeat = w->kernel->not_finite(s->tile.width, s->tile.rows, p->shape.dim_v, s->Ot);
    if (p->mask.empty == ATTN_EMPTY_UNIFORM && find_empty(task, s, empty)) {
        s->empty = empty;
        s->keys.low = 0;
        s->keys.high = p->has.cu_seqlens_q ? task->sight.len_kv : p->shape.len_kv;
        attn_task_pack(task, &s->tile, s->Qt);
        repeat = 1;
    }
    if (repeat) repeat_carefully(task, s);
    if (p->score.normaliser == ATTN_NORMALISER_SIGMOID) w->kernel->alone.settle(s->tile.width, s->l);
    finish(task, s);
    if (s->empty || attn_has_sink(p)) mark_empty(task, s);
    if (!plan->outputs) return;
    attn_finished done = {&s->tile, s->Qt, s->m, s->l, s->keys, s->empty};
    attn_outputs_of_tile(task, &done, shared);
}

/* Opens a slot: its state and, if it sees any key, its queries.  Returns 0 if it has no rows. */
static int open_slot(const attn_task *task, slot *s)
{
    if (s->tile.rows == 0) return 0;
    start(task, s);
    if (s->keys.low < s->keys.high) attn_task_pack(task, &s->tile, s->Qt);
    return 1;
}

/* The first key from j on that one of the slots may see. */
static int64_t beyond_gaps(const slot *slots, int64_t count, int64_t j)
{
    int64_t next = INT64_MAX;
    for (int64_t t = 0; t < count; t++)
        if (j < slots[t].keys.high) next = attn_min(next, beyond_gap(&slots[t], j));
    return next;
}

static int64_t last_of(const slot *slots, int64_t count)
{
    int64_t high = 0;
    for (int64_t t = 0; t < count; t++) high = attn_max(high, slots[t].keys.high);
    return high;
}

/* The walk proper: all slots, which share a key head, against the keys that one of them sees. */
static void fold_all(slot *slots, int64_t count)
{
    const attn_walk *w = slots[0].task->walk;
    const int64_t high = last_of(slots, count);
    int64_t end;
    for (int64_t j = beyond_gaps(slots, count, 0); j < high; j = beyond_gaps(slots, count, end)) {
        attn_interval run[ATTN_MOST_TILES];
        int needed[ATTN_MOST_TILES], any = 0;
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

/* The same, part by part. */
static void fold_parts(slot *slots, int64_t count)
{
    const attn_walk *w = slots[0].task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const int64_t high = last_of(slots, count);
    int64_t part;
    if (plan->parts == 1) {
        fold_all(slots, count);
        return;
    }
    for (int64_t j = beyond_gaps(slots, count, 0); j < high; j = beyond_gaps(slots, count, (part + 1) * plan->part_kv)) {
        slot own[ATTN_MOST_TILES];
        int open[ATTN_MOST_TILES];
        part = j / plan->part_kv;
        for (int64_t t = 0; t < count; t++) open[t] = open_part(&slots[t], part, &own[t]);
        fold_all(own, count);
        for (int64_t t = 0; t < count; t++)
            if (open[t]) close_part(&slots[t], &own[t]);
    }
}

/* ---- tasks ---- */

typedef struct call {
    const attn_forward_walk *plan;
    const attn_walk *walk; /* of it */
    const attn_args *args;
    char *workspace;
} call;

static char *shared_of(const call *c) { return c->workspace + c->walk->workers * c->walk->worker_bytes; }

/* Some query tiles of one head. */
static int64_t open_tiles(const attn_task *task, int64_t group, slot *slots)
{
    const attn_walk *w = task->walk;
    int64_t count = 0;
    for (int64_t t = group * attn_tiles_of(w)->group; t < attn_min((group + 1) * attn_tiles_of(w)->group, w->tiles); t++) {
        slots[count] = slot_at(task, t, count);
        count += open_slot(task, &slots[count]);
    }
    return count;
}

/* Few queries: their one tile, of some heads that share a key head, so that each key is read once for all of them. */
static int64_t open_heads(const call *c, char *memory, int64_t number, attn_task *tasks, slot *slots)
{
    const attn_walk *w = c->walk;
    const attn_shape *shape = &w->problem.shape;
    int64_t heads = shape->heads_q / shape->heads_kv, groups = attn_ceil_div(heads, attn_tiles_of(w)->group), count = 0;
    int64_t first = number % groups * attn_tiles_of(w)->group, key_head = number / groups;
    for (int64_t h = first; h < attn_min(first + attn_tiles_of(w)->group, heads); h++) {
        attn_task *task = &tasks[h - first];
        *task = attn_task_of_head(w, c->args, memory, key_head * heads + h);
        slots[count] = slot_at(task, 0, count);
        count += open_slot(task, &slots[count]);
    }
    return count;
}

/* A group of tiles, by its number.  Heads in order, so that workers share a head's keys in the cache; the last queries first, since
 * under a causal mask they see the most keys. */
static int64_t open_slots(const call *c, char *memory, int64_t number, attn_task *tasks, slot *slots)
{
    const attn_walk *w = c->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    if (plan->by_heads) return open_heads(c, memory, number, tasks, slots);
    const int64_t groups = w->tiles == 1 ? 1 : attn_ceil_div(w->tiles, attn_tiles_of(w)->group),
                  head = groups == 1 ? number : number / groups;
    tasks[0] = attn_task_of_head(w, c->args, memory, head);
    return open_tiles(&tasks[0], groups - 1 - (number - head * groups), slots);
}

static void run_slots(const call *c, slot *slots, int64_t count)
{
    if (count) fold_parts(slots, count);
    for (int64_t t = 0; t < count; t++) finish_slot(&slots[t], shared_of(c));
}

/* What head number `head` reads and writes, as far as the worker does not have it already from the head before. */
static attn_ahead ahead_of_head(const call *c, const attn_task *before, int64_t head)
{
    const attn_walk *w = c->walk;
    const attn_resolved *p = &w->problem;
    attn_ahead ahead = {.size = (int64_t)attn_dtype_bytes(w->compute)};
    if (head >= p->shape.batch * p->shape.heads_q || p->shape.dim_qk != p->shape.dim_v) return ahead;
    const attn_task task = attn_task_of_head(w, c->args, before->memory, head);
    const int same_keys = task.b == before->b && task.g == before->g;
    const struct {
        const attn_layout *layout;
        const char *rows;
        int64_t count;
    } tensors[] = {
        {&p->at.q, attn_query_row(&task, c->args->q, &p->at.q, 0), task.sight.len_q},
        {&p->at.k, attn_key_row(&task, c->args->k, &p->at.k, 0), same_keys || attn_tiles_of(w)->compact_k ? 0 : task.sight.len_kv},
        {&p->at.v, attn_key_row(&task, c->args->v, &p->at.v, 0), same_keys || attn_tiles_of(w)->compact_v ? 0 : task.sight.len_kv},
        {&p->at.o, attn_query_row(&task, c->args->o, &p->at.o, 0), task.sight.len_q},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (tensors[i].layout->dtype != w->compute) continue;
        ahead.part[ahead.parts].at = (uintptr_t)tensors[i].rows;
        ahead.part[ahead.parts].left = tensors[i].count;
        ahead.part[ahead.parts++].ld = tensors[i].layout->stride[2];
    }
    return ahead;
}

/* A whole head, whose worker will most likely go on with the head that is `workers` further. */
static void run_head(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    slot slots[ATTN_MOST_TILES];
    attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, number);
    attn_ahead ahead = ahead_of_head(c, &task, number + w->workers);
    task.ahead = &ahead;
    for (int64_t group = 0; group * attn_tiles_of(w)->group < w->tiles; group++)
        run_slots(c, slots, open_tiles(&task, group, slots));
}

/* 1 if a task has nothing to do since its sequence is another walk's: there may be many, and this is soon known. */
static int is_of_others(const call *c, int64_t number)
{
    const attn_resolved *p = &c->walk->problem;
    if (p->most_q == 0 || (!p->leaves_others && !attn_is_packed(p))) return 0;
    return !attn_has_entry(p, c->args, number / (c->walk->tasks / p->shape.batch));
}

static void run_group(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    attn_task tasks[ATTN_MOST_TILES];
    slot slots[ATTN_MOST_TILES];
    if (is_of_others(c, number)) return;
    run_slots(c, slots, open_slots(c, c->workspace + worker * c->walk->worker_bytes, number, tasks, slots));
}

/* ---- few queries and heads, many keys: parts are tasks, some of them at once ---- */

/* What a part leaves behind. */
enum { PART_UNSEEN, PART_SEEN, PART_DROPPED };

typedef struct some_parts {
    const call *call;
    int64_t first, end; /* parts */
} some_parts;

/* A state of a head becomes the slot's; returns where its mark is.  State 0 is that of all parts so far, and of part 0. */
static int *use_state(const call *c, slot *s, int64_t number)
{
    const attn_walk *w = c->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    int64_t head = s->task->b * w->problem.shape.heads_q + s->task->h;
    char *state = shared_of(c) + plan->shared.states + (head * (plan->at_once + 1) + number) * plan->shared.state_bytes;
    s->Ot = state;
    s->m = state + plan->scratch.O_bytes;
    s->l = state + plan->scratch.O_bytes + at->lane_bytes;
    return (int *)(void *)(state + plan->scratch.O_bytes + 2 * at->lane_bytes);
}

static int64_t state_of(const some_parts *r, int64_t part) { return r->first == 0 ? part : part - r->first + 1; }

static void run_part(void *context, int64_t worker, int64_t number)
{
    const some_parts *r = context;
    const call *c = r->call;
    const attn_walk *w = c->walk;
    const int64_t part = r->first + number % (r->end - r->first);
    attn_task tasks[ATTN_MOST_TILES];
    slot slots[ATTN_MOST_TILES], own[ATTN_MOST_TILES];
    int *mark[ATTN_MOST_TILES], any = 0;
    int64_t count = open_slots(c, c->workspace + worker * w->worker_bytes, number / (r->end - r->first), tasks, slots);
    for (int64_t t = 0; t < count; t++) {
        const int seen = open_part(&slots[t], part, &own[t]);
        mark[t] = use_state(c, &own[t], state_of(r, part));
        *mark[t] = seen ? PART_SEEN : PART_UNSEEN;
        any |= seen;
        if (part == 0) start(own[t].task, &own[t]);
        else if (seen) start_with(own[t].task, &own[t], -INFINITY);
    }
    if (any) fold_all(own, count);
    for (int64_t t = 0; t < count; t++)
        if (own[t].dropped) *mark[t] = PART_DROPPED;
}

static void run_merge(void *context, int64_t worker, int64_t head)
{
    const some_parts *r = context;
    const call *c = r->call;
    const attn_walk *w = c->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, head);
    slot s = slot_at(&task, 0, 0), other = s;
    if (!open_slot(&task, &s)) return;
    int *all = use_state(c, &s, 0);
    for (int64_t part = attn_max(r->first, 1); part < r->end; part++) {
        const int mark = *use_state(c, &other, state_of(r, part));
        if (mark == PART_UNSEEN) continue;
        if (mark == PART_DROPPED) *all = PART_DROPPED;
        close_part(&s, &other);
    }
    s.dropped = *all == PART_DROPPED;
    if (r->end == plan->parts) finish_slot(&s, shared_of(c));
}

static void run_rounds(const call *c)
{
    const attn_walk *w = c->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const int64_t tasks = w->tasks / plan->at_once, heads = w->problem.shape.batch * w->problem.shape.heads_q;
    for (int64_t first = 0; first < plan->parts; first += plan->at_once) {
        some_parts r = {c, first, attn_min(first + plan->at_once, plan->parts)};
        attn_threads_run(w->parallel_for, w->parallel_context, w->workers, tasks * (r.end - r.first), run_part, &r);
        attn_threads_run(w->parallel_for, w->parallel_context, w->workers, heads, run_merge, &r);
    }
}

void attn_forward_run(const attn_forward_walk *plan, const attn_args *args, const attn_args *folded, char *workspace)
{
    const attn_tile_walk *tiles = &plan->tiles;
    const attn_walk *walk = &tiles->walk;
    const attn_resolved *p = &walk->problem;
    char *relative = workspace + tiles->tables.bytes;
    attn_args prepared = *folded;
    attn_tables_begin(&tiles->tables, walk, args, workspace, &prepared);
    attn_relative_begin(tiles, &plan->prepare.problem, args, relative, &prepared);
    call c = {plan, walk, &prepared, relative + tiles->relative.bytes};
    if (plan->at_once > 1) run_rounds(&c);
    else
        attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks,
                         plan->whole_heads ? run_head : run_group, &c);
    if (p->has.column_sum) attn_sum_columns(walk, &prepared, c.workspace);
    if (p->has.dropout_keep || (p->has.cu_seqlens_q && (p->has.weights || p->has.scores)))
        attn_write_pairs(walk, &prepared, c.workspace);
}
