/* SPDX-License-Identifier: MIT
 * chain.c - groups of tiles that add to the same dK and dV, in order. */
#define _POSIX_C_SOURCE 200809L /* sched_yield */
#include "chain.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/names.h"
#include "../threads/threads.h"
#include "relative_sums.h"
#include "table_sums.h"

typedef struct call {
    const attn_sum_walk *plan;
    const attn_walk *walk; /* of it */
    const attn_args *args;
    char *workers, *shared;
    const attn_chain_steps *steps;
    const attn_split_sums_target *target;
    int64_t key_heads;
    int64_t groups;         /* of all heads of a key head */
    int64_t spans;          /* that the keys are cut into */
    int64_t first_key_head; /* if the gradients of tables are summed round by round */
} call;

/* ---- per-head sums ---- */

static void clear_numbers(const attn_walk *w, attn_head_sums *sums, double *dw)
{
    const attn_head_sums none = {0, 0, 0};
    *sums = none;
    for (int64_t k = 0; dw && k < 2 * w->problem.shape.dim_qk; k++) dw[k] = 0;
}

static double *weights_of_tile(const attn_walk *w, const attn_split_sums *to, int64_t place)
{
    return to->dw ? to->dw + place * 2 * w->problem.shape.dim_qk : NULL;
}

static void clear_tiles(const attn_task *task, const attn_split_sums *to)
{
    const attn_walk *w = task->walk;
    for (int64_t place = 0; place < attn_tiles_of(w)->group; place++) {
        clear_numbers(w, &to->sums[place], weights_of_tile(w, to, place));
        if (w->problem.has.grad_bias_table) attn_table_sums_clear(task, place);
    }
}

static void *tables_at(const call *c, const attn_task *task, int64_t place)
{
    const attn_shape *s = &c->walk->problem.shape;
    return attn_relative_sums_at(c->walk, c->shared, place, task->h % (s->heads_q / s->heads_kv));
}

/* 1 if a group is the only one that adds to a key head's sums for a table. */
static int sums_tables_directly(const call *c)
{
    const attn_shape *s = &c->walk->problem.shape;
    if (c->plan->at_once > 1 || c->groups == 0) return 0;
    const int64_t heads = s->heads_q / s->heads_kv;
    return (heads == 1 || !attn_relative_split_sums(c->walk)) && c->groups / heads <= c->plan->joined;
}

/* Adds the sums of a group's tiles to those of their head, tile by tile: groups end in order.  number: of the group within its
 * head. */
static void join_head(const call *c, const attn_task *task, const attn_gradient_group *group, const attn_split_sums *to,
                      int64_t number, int64_t place)
{
    const attn_walk *w = task->walk;
    const int64_t heads = w->problem.shape.heads_q, head = task->b * heads + task->h;
    attn_head_sums *sums = attn_head_sums_at(w, c->shared, head);
    double *dw = attn_weight_sums_at(w, c->shared, head);
    for (int64_t k = 0; k < group->count; k++) {
        const int64_t tile = group->tiles[k].tile.place;
        const double *own = weights_of_tile(w, to, tile);
        sums->scale += to->sums[tile].scale;
        sums->slope += to->sums[tile].slope;
        sums->sink += to->sums[tile].sink;
        for (int64_t n = 0; dw && n < 2 * w->problem.shape.dim_qk; n++) dw[n] += own[n];
        if (w->problem.has.grad_bias_table) attn_table_sums_keep(task, tile, c->shared);
    }
    const int joins = (number + 1) % c->plan->joined == 0 || (number + 1) * attn_tiles_of(w)->group >= attn_tiles_of_sums(w);
    if (attn_grads_relative(&w->problem) && joins && !sums_tables_directly(c))
        attn_relative_join(w, to->relative, tables_at(c, task, place));
}

/* ---- dK and dV ---- */

static attn_split_sums split_sums_of(const call *c, const attn_task *task, int64_t place)
{
    const attn_walk *w = c->walk;
    const attn_split_sums_target *t = c->target;
    attn_split_sums to = {.sums = attn_part(task, c->plan->sums), .shared = c->shared};
    if (c->plan->sums_in_place) {
        to.dK = attn_key_row(task, t->k, t->k_layout, 0);
        to.dV = attn_key_row(task, t->v, t->v_layout, 0);
    } else {
        to.dK = c->plan->at_once > 1 ? c->shared + c->plan->shared.dK : attn_part(task, c->plan->dK);
        to.dV = c->plan->at_once > 1 ? c->shared + c->plan->shared.dV : attn_part(task, c->plan->dV);
    }
    if (attn_sums_weights(&w->problem)) to.dw = attn_part(task, c->plan->dw);
    if (attn_grads_relative(&w->problem))
        to.relative = sums_tables_directly(c) ? tables_at(c, task, place) : attn_part(task, c->plan->relative_sums);
    return to;
}

/* The keys of a span of the key head. */
static attn_interval rows_of(const call *c, const attn_task *task, int64_t span)
{
    const attn_walk *w = c->walk;
    const int64_t rows = attn_keys_are_packed(&w->problem) ? task->visibility.len_kv : w->problem.shape.len_kv;
    const int64_t blocks = attn_ceil_div(w->problem.shape.len_kv, w->block_kv);
    const int64_t low = span * blocks / c->spans * w->block_kv, high = (span + 1) * blocks / c->spans * w->block_kv;
    return (attn_interval){attn_min(low, rows), attn_min(high, rows)};
}

static char *row_of(const attn_walk *w, const void *sums, int64_t j, int64_t ld)
{
    return (char *)(uintptr_t)sums + j * ld * (int64_t)attn_dtype_bytes(w->compute);
}

static void clear_rows(const attn_walk *w, const attn_split_sums *to, attn_interval rows)
{
    const size_t count = (size_t)(rows.high - rows.low), size = attn_dtype_bytes(w->compute);
    if (count == 0) return;
    memset(row_of(w, to->dK, rows.low, attn_sums_of(w)->ld_dK), 0, count * (size_t)attn_sums_of(w)->ld_dK * size);
    memset(row_of(w, to->dV, rows.low, attn_sums_of(w)->ld_dV), 0, count * (size_t)attn_sums_of(w)->ld_dV * size);
}

static void store_rows(const call *c, const attn_task *task, const attn_split_sums *to, attn_interval rows)
{
    const attn_walk *w = c->walk;
    const attn_shape *s = &w->problem.shape;
    const attn_layout *k = c->target->k_layout, *v = c->target->v_layout;
    const int64_t n = rows.high - rows.low;
    if (c->plan->sums_in_place || n == 0) return;
    w->kernel.storage->store_rows(n, s->dim_qk, 1, row_of(w, to->dK, rows.low, c->plan->ld_dK), c->plan->ld_dK,
                                  attn_key_row(task, c->target->k, k, rows.low), k->dtype, k->stride[2]);
    w->kernel.storage->store_rows(n, s->dim_v, 1, row_of(w, to->dV, rows.low, c->plan->ld_dV), c->plan->ld_dV,
                                  attn_key_row(task, c->target->v, v, rows.low), v->dtype, v->stride[2]);
}

/* ---- steps ---- */

/* One step of a group: step 0 opens it, the others each go over one span.  place: of the key head's sums for tables. */
static void run_step(const call *c, char *memory, int64_t key_head, int64_t number, int64_t step, int64_t place)
{
    const attn_walk *w = c->walk;
    const int64_t heads = w->problem.shape.heads_q / w->problem.shape.heads_kv, of_head = c->groups / heads;
    const attn_task task = attn_task_of_head(w, c->args, memory, key_head * heads + number / of_head);
    const attn_split_sums to = split_sums_of(c, &task, place);
    attn_gradient_group *group = attn_part(&task, c->plan->group);
    if (step == 0) {
        const int64_t tile = number % of_head * attn_tiles_of(w)->group;
        if (number == 0 && c->plan->at_once == 1 && attn_grads_relative(&w->problem)) attn_relative_sums_clear(w, c->shared, place);
        clear_tiles(&task, &to);
        c->steps->open(&task, tile, attn_min(attn_tiles_of(w)->group, attn_tiles_of_sums(w) - tile), c->plan->at_once == 1, group,
                       &to);
        return;
    }
    const attn_interval rows = rows_of(c, &task, step - 1);
    if (number == 0) clear_rows(w, &to, rows);
    c->steps->walk(&task, group, rows, &to);
    if (number == c->groups - 1) store_rows(c, &task, &to, rows);
    if (step < c->spans) return;
    c->steps->finish(&task, group, &to);
    if (number == 0 && c->plan->at_once > 1 && attn_grads_relative(&w->problem)) attn_relative_sums_clear(w, c->shared, place);
    join_head(c, &task, group, &to, number % of_head, place);
}

/* Many key heads: each task has its own and waits for nobody. */
static void run_key_head(void *context, int64_t worker, int64_t place)
{
    const call *c = context;
    char *memory = c->workers + worker * c->walk->worker_bytes;
    for (int64_t number = 0; number < c->groups; number++)
        for (int64_t step = 0; step <= c->spans; step++) run_step(c, memory, c->first_key_head + place, number, step, place);
}

/* No queries: zeros. */
static void clear_key_head(void *context, int64_t worker, int64_t key_head)
{
    const call *c = context;
    const attn_task task = attn_task_of_key_head(c->walk, c->args, c->workers + worker * c->walk->worker_bytes, key_head);
    const attn_split_sums to = split_sums_of(c, &task, 0);
    const attn_interval rows = rows_of(c, &task, 0);
    clear_rows(c->walk, &to, rows);
    store_rows(c, &task, &to, rows);
}

/*
 * Few key heads: the groups, one key head after another, run in one task per worker.  Place n takes every at_once-th group from
 * group n on, in the n-th worker's memory; its count is twice the number of steps done, plus one while a task runs the next one.
 */
static atomic_llong *count_of(const call *c, int64_t place)
{
    return (atomic_llong *)(void *)(c->shared + c->plan->shared.steps) + place;
}

/* 1 if the group before has passed these keys, or adds to other sums. */
static int is_free(const call *c, int64_t number, int64_t step)
{
    const attn_walk *w = c->walk;
    const int own_sums = c->plan->sums_in_place && !attn_grads_relative(&w->problem); /* each key head has its own */
    if (step == 0 || number == 0 || (own_sums && number % c->groups == 0)) return 1;
    const int64_t before = number - 1, needed = before / c->plan->at_once * (c->spans + 1) + step + 1;
    return atomic_load_explicit(count_of(c, before % c->plan->at_once), memory_order_acquire) / 2 >= needed;
}

enum place_state { PLACE_ENDED, PLACE_WAITS, PLACE_MOVED };

/* Advances a place by a step, if possible. */
static enum place_state try_place(const call *c, int64_t place)
{
    const attn_walk *w = c->walk;
    long long count = atomic_load_explicit(count_of(c, place), memory_order_acquire);
    const int64_t done = count / 2, number = done / (c->spans + 1) * c->plan->at_once + place, step = done % (c->spans + 1);
    if (number >= c->groups * c->key_heads) return PLACE_ENDED;
    if (count % 2 || !is_free(c, number, step)) return PLACE_WAITS;
    if (!atomic_compare_exchange_strong_explicit(count_of(c, place), &count, count + 1, memory_order_acquire, memory_order_relaxed))
        return PLACE_WAITS;
    const int64_t key_head = number / c->groups, group = number % c->groups;
    run_step(c, c->workers + place * w->worker_bytes, key_head, group, step, 0);
    if (attn_grads_relative(&w->problem) && group == c->groups - 1 && step == c->spans)
        for (int64_t table = 0; table < attn_tiles_of(w)->relative.tables; table++)
            attn_relative_totals_add(w, c->shared, table, 0, key_head);
    atomic_store_explicit(count_of(c, place), count + 2, memory_order_release);
    return PLACE_MOVED;
}

/* A worker stays at its own place, whose memory is in its cache.  If that waits long, the place it waits for may have no worker:
 * then it advances any place that can.  No deadlock: the first of the remaining groups waits for nobody. */
static void run_places(void *context, int64_t worker, int64_t own)
{
    enum { PATIENCE = 1 << 10 };
    const call *c = context;
    const int64_t places = c->plan->at_once;
    (void)worker;
    for (int waited = 0;;) {
        enum place_state state = try_place(c, own);
        if (state == PLACE_WAITS && ++waited < PATIENCE) continue;
        waited = 0;
        if (state == PLACE_MOVED) continue;
        int left = state != PLACE_ENDED;
        for (int64_t k = 1; k < places && state != PLACE_MOVED; k++) {
            state = try_place(c, (own + k) % places);
            left |= state != PLACE_ENDED;
        }
        if (!left) return;
        if (state != PLACE_MOVED) (void)sched_yield();
    }
}

/* ---- the call ---- */

static void run(const call *c, int64_t tasks, void (*task)(void *context, int64_t worker, int64_t task))
{
    call copy = *c;
    attn_threads_run(c->walk->parallel_for, c->walk->parallel_context, c->walk->workers, tasks, task, &copy);
}

/* One key head per task, with tables: as many at once as there are places for the sums of their tables, which are then added in
 * order. */
static void run_rounds(call *c)
{
    const attn_walk *w = c->walk;
    const int64_t places = c->plan->relative.places, tables = attn_tiles_of(w)->relative.tables;
    for (; c->first_key_head < c->key_heads; c->first_key_head += places) {
        const int64_t count = attn_min(places, c->key_heads - c->first_key_head);
        run(c, count, run_key_head);
        for (int64_t table = 0; table < tables; table++)
            for (int64_t place = 0; place < count; place++)
                attn_relative_totals_add(w, c->shared, table, place, c->first_key_head + place);
    }
}

static void clear_totals(const call *c)
{
    const attn_walk *w = c->walk;
    for (int64_t head = 0; head < w->problem.shape.batch * w->problem.shape.heads_q; head++) {
        clear_numbers(w, attn_head_sums_at(w, c->shared, head), attn_weight_sums_at(w, c->shared, head));
        if (w->problem.has.grad_bias_table) attn_table_sums_begin(w, head, c->shared);
    }
    if (!attn_grads_relative(&w->problem) || w->tasks == 0) return;
    attn_relative_totals_clear(w, c->shared);
    for (int worker = 0; worker < w->workers; worker++)
        attn_relative_sums_begin(w, c->workers + worker * w->worker_bytes + c->plan->relative_sums);
}

void attn_chain_run(const attn_walk *walk, const attn_args *args, void *workspace, const attn_chain_steps *steps,
                    const attn_split_sums_target *target)
{
    enum { SPANS = 8 }; /* for each place, to shorten waits at the start and end of a head and under a causal mask */
    const attn_shape *shape = &walk->problem.shape;
    call c = {
        .plan = attn_sums_of(walk), .walk = walk, .args = args, .workers = workspace, .steps = steps, .target = target, .spans = 1};
    c.shared = attn_shared_of(walk, workspace);
    c.key_heads = shape->batch * shape->heads_kv;
    clear_totals(&c);
    if (c.key_heads == 0) return;
    c.groups = shape->heads_q / shape->heads_kv * attn_ceil_div(attn_tiles_of_sums(walk), attn_tiles_of(walk)->group);
    if (c.groups == 0) {
        run(&c, c.key_heads, clear_key_head);
    } else if (attn_sums_of(walk)->at_once > 1) {
        c.spans = attn_min(attn_ceil_div(shape->len_kv, walk->block_kv), SPANS * attn_sums_of(walk)->at_once);
        for (int64_t place = 0; place < attn_sums_of(walk)->at_once; place++) atomic_init(count_of(&c, place), 0);
        run(&c, attn_sums_of(walk)->at_once, run_places);
    } else if (attn_grads_relative(&walk->problem)) {
        run_rounds(&c);
    } else {
        run(&c, c.key_heads, run_key_head);
    }
}
