/* SPDX-License-Identifier: MIT
 *
 * forward.c - the walk of forward attention over tiles of (queries x keys); the steps of a tile are in slot.c.
 *
 *      for each task (a few query tiles of one head):
 *          for each block of keys that one of them sees:
 *              score     S = scale Q K^T                                  one product
 *              modify    softcap, bias, masks, visible range              only where a tile needs it
 *              fold      m, l, O absorb S and V                           the online softmax
 *          finish        O / l, lse, and what else is requested of the tile (outputs.c)
 *
 * Rows are independent of one another in every bit, so the order of tasks, the group and the workers are free.
 */
#include <math.h>

#include "../../base/names.h"
#include "../../prepare/relative_prepare.h"
#include "../../threads/threads.h"
#include "outputs.h"
#include "slot.h"
#include "tiles.h"

typedef struct call {
    const attn_forward_walk *plan;
    const attn_walk *walk; /* that of the plan */
    const attn_args *args;
    char *workspace;
} call;

static char *shared_of(const call *c) { return c->workspace + c->walk->workers * c->walk->worker_bytes; }

/* Opens some query tiles of one head. */
static int64_t open_tiles(const attn_task *task, int64_t first, int64_t end, attn_slot *slots)
{
    int64_t count = 0;
    for (int64_t t = first; t < end; t++) {
        slots[count] = attn_slot_at(task, t, count);
        count += attn_slot_open(task, &slots[count]);
    }
    return count;
}

/* Few queries: opens the single tile of several heads that share a key head, so that each key is read once for all of them. */
static int64_t open_heads(const call *c, char *memory, int64_t number, attn_task *tasks, attn_slot *slots)
{
    const attn_walk *w = c->walk;
    const attn_shape *shape = &w->problem.shape;
    int64_t heads = shape->heads_q / shape->heads_kv, groups = attn_ceil_div(heads, attn_tiles_of(w)->group), count = 0;
    int64_t first = number % groups * attn_tiles_of(w)->group, key_head = number / groups;
    for (int64_t h = first; h < attn_min(first + attn_tiles_of(w)->group, heads); h++) {
        attn_task *task = &tasks[h - first];
        *task = attn_task_of_head(w, c->args, memory, key_head * heads + h);
        slots[count] = attn_slot_at(task, 0, count);
        count += attn_slot_open(task, &slots[count]);
    }
    return count;
}

/* Opens a group of tiles, by its number.  Heads in order, so that workers share a head's keys in the cache; the last queries first,
 * since under a causal mask they see the most keys. */
static int64_t open_slots(const call *c, char *memory, int64_t number, attn_task *tasks, attn_slot *slots)
{
    const attn_walk *w = c->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_part_schedule *schedule = c->args->schedule;
    if (plan->by_heads) return open_heads(c, memory, attn_scheduled_number(c->args, number, plan->tasks_of_entry), tasks, slots);
    if (schedule) {
        const attn_item *item = &schedule->items[number / plan->tasks_of_entry];
        tasks[0] = attn_task_of_head(w, c->args, memory, attn_scheduled_number(c->args, number, plan->tasks_of_entry));
        return open_tiles(&tasks[0], item->first, item->first + item->count, slots);
    }
    const int64_t of_group = attn_tiles_of(w)->group, groups = w->tiles == 1 ? 1 : attn_ceil_div(w->tiles, of_group),
                  head = groups == 1 ? number : number / groups, group = groups - 1 - (number - head * groups);
    tasks[0] = attn_task_of_head(w, c->args, memory, head);
    return open_tiles(&tasks[0], group * of_group, attn_min((group + 1) * of_group, w->tiles), slots);
}

static void run_slots(const call *c, attn_slot *slots, int64_t count)
{
    if (count) attn_slots_fold_parts(slots, count);
    for (int64_t t = 0; t < count; t++) attn_slot_finish(&slots[t], shared_of(c));
}

/* What head `head` reads and writes, except what the worker already has from the head before. */
static attn_next_task next_task_at(const call *c, const attn_task *before, int64_t head)
{
    const attn_walk *w = c->walk;
    const attn_resolved *p = &w->problem;
    attn_next_task next_task = {.size = (int64_t)attn_dtype_bytes(w->compute)};
    if (head >= p->shape.batch * p->shape.heads_q || p->shape.dim_qk != p->shape.dim_v) return next_task;
    const attn_task task = attn_task_of_head(w, c->args, before->memory, head);
    const int same_keys = task.b == before->b && task.g == before->g;
    const struct {
        const attn_layout *layout;
        const char *rows;
        int64_t count;
    } tensors[] = {
        {&p->at.q, attn_query_row(&task, c->args->q, &p->at.q, 0), task.visibility.len_q},
        {&p->at.k, attn_key_row(&task, c->args->k, &p->at.k, 0),
         same_keys || attn_tiles_of(w)->compact_k ? 0 : task.visibility.len_kv},
        {&p->at.v, attn_key_row(&task, c->args->v, &p->at.v, 0),
         same_keys || attn_tiles_of(w)->compact_v ? 0 : task.visibility.len_kv},
        {&p->at.o, attn_query_row(&task, c->args->o, &p->at.o, 0), task.visibility.len_q},
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (tensors[i].layout->dtype != w->compute) continue;
        next_task.part[next_task.parts].at = (uintptr_t)tensors[i].rows;
        next_task.part[next_task.parts].left = tensors[i].count;
        next_task.part[next_task.parts++].ld = tensors[i].layout->stride[2];
    }
    return next_task;
}

/* Runs a whole head; its worker will most likely continue with the head that is `workers` further. */
static void run_head(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    attn_slot slots[ATTN_MAX_TILES];
    const int64_t head = attn_scheduled_number(c->args, number, w->problem.shape.heads_q), group = attn_tiles_of(w)->group;
    attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, head);
    attn_next_task next_task = next_task_at(c, &task, head + w->workers);
    task.next_task = &next_task;
    for (int64_t first = 0; first < w->tiles; first += group)
        run_slots(c, slots, open_tiles(&task, first, attn_min(first + group, w->tiles), slots));
}

/* 1 if a task has nothing to do since its sequence belongs to another walk: there may be many, and this check is cheap. */
static int is_of_other_walk(const call *c, int64_t number)
{
    const attn_resolved *p = &c->walk->problem;
    if (c->args->schedule || p->max_q == 0 || (!p->skips_others && !attn_is_packed(p))) return 0;
    return !attn_has_entry(p, c->args, number / (c->walk->tasks / p->shape.batch));
}

static void run_group(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    attn_task tasks[ATTN_MAX_TILES];
    attn_slot slots[ATTN_MAX_TILES];
    if (is_of_other_walk(c, number)) return;
    run_slots(c, slots, open_slots(c, c->workspace + worker * c->walk->worker_bytes, number, tasks, slots));
}

/* ---- split-KV, for few queries and heads and many keys: parts are tasks, some of them at once ---- */

/* The mark of a part's state. */
enum { PART_UNSEEN, PART_SEEN, PART_DROPPED };

typedef struct some_parts {
    const call *call;
    int64_t first, end; /* parts */
    int last;           /* no tile sees a key of those after them */
} some_parts;

/* Makes a state of a head the slot's; returns the address of its mark.  State 0 is that of all parts so far, and of part 0. */
static int *use_state(const call *c, attn_slot *s, int64_t number)
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
    attn_task tasks[ATTN_MAX_TILES];
    attn_slot slots[ATTN_MAX_TILES], own[ATTN_MAX_TILES];
    int *mark[ATTN_MAX_TILES], any = 0;
    int64_t count = open_slots(c, c->workspace + worker * w->worker_bytes, number / (r->end - r->first), tasks, slots);
    for (int64_t t = 0; t < count; t++) {
        const int seen = attn_slot_open_part(&slots[t], part, &own[t]);
        mark[t] = use_state(c, &own[t], state_of(r, part));
        *mark[t] = seen ? PART_SEEN : PART_UNSEEN;
        any |= seen;
        if (part == 0) attn_slot_start(own[t].task, &own[t]);
        else if (seen) attn_slot_start_with(own[t].task, &own[t], -INFINITY);
    }
    if (any) attn_slots_fold(own, count);
    for (int64_t t = 0; t < count; t++)
        if (own[t].dropped) *mark[t] = PART_DROPPED;
}

static void run_merge(void *context, int64_t worker, int64_t number)
{
    const some_parts *r = context;
    const call *c = r->call;
    const attn_walk *w = c->walk;
    const int64_t head = attn_scheduled_number(c->args, number, w->problem.shape.heads_q);
    attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, head);
    attn_slot s = attn_slot_at(&task, 0, 0), other = s;
    if (!attn_slot_open(&task, &s)) return;
    int *all = use_state(c, &s, 0);
    for (int64_t part = attn_max(r->first, 1); part < r->end; part++) {
        const int mark = *use_state(c, &other, state_of(r, part));
        if (mark == PART_UNSEEN) continue;
        if (mark == PART_DROPPED) *all = PART_DROPPED;
        attn_slot_close_part(&s, &other);
    }
    s.dropped = *all == PART_DROPPED;
    if (r->last) attn_slot_finish(&s, shared_of(c));
}

/* From the first part at `part` or after it to the last one of which a head's tile sees keys; empty: there is none. */
static attn_interval parts_from(const call *c, int64_t part)
{
    const attn_walk *w = c->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_shape *shape = &w->problem.shape;
    const int64_t heads = (c->args->schedule ? c->args->schedule->count : shape->batch) * shape->heads_q;
    const int differ = c->args->ranges != NULL || attn_has_choices(&w->problem); /* the heads of an entry */
    attn_interval seen = {plan->parts, 0};
    for (int64_t number = 0; number < heads; number += differ ? 1 : shape->heads_q) {
        const attn_task task = attn_task_of_head(w, c->args, c->workspace, attn_scheduled_number(c->args, number, shape->heads_q));
        const attn_slot s = attn_slot_at(&task, 0, 0);
        const int64_t low = attn_slot_beyond_gap(&s, part * plan->part_kv);
        if (s.tile.rows == 0 || low >= s.keys.high) continue;
        seen.low = attn_min(seen.low, low / plan->part_kv);
        seen.high = attn_max(seen.high, attn_ceil_div(s.keys.high, plan->part_kv));
    }
    return seen;
}

/* Parts that no tile sees are passed over: a plan has those of its capacity, of which sequences may fill few.  The first one starts
 * all states. */
static void run_rounds(const call *c)
{
    const attn_walk *w = c->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_shape *s = &w->problem.shape;
    attn_interval left = {0, attn_max(parts_from(c, 0).high, 1)};
    while (left.low < left.high) {
        some_parts r = {c, left.low, attn_min(left.low + plan->at_once, left.high), 0};
        const int64_t parts = r.end - r.first;
        left = parts_from(c, r.end);
        r.last = left.low >= left.high;
        attn_scheduled_run(w, c->args, w->tasks / plan->at_once * parts, plan->tasks_of_entry * parts, run_part, &r);
        attn_scheduled_run(w, c->args, s->batch * s->heads_q, s->heads_q, run_merge, &r);
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
    else attn_scheduled_run(walk, args, walk->tasks, plan->tasks_of_entry, plan->whole_heads ? run_head : run_group, &c);
    if (p->has.column_sum) attn_sum_columns(walk, &prepared, c.workspace);
    if (p->has.dropout_keep || (p->has.cu_seqlens_q && (p->has.weights || p->has.scores)))
        attn_write_pairs(walk, &prepared, c.workspace);
}
