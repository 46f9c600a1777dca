/* SPDX-License-Identifier: MIT
 * chain.c - groups of tiles that add to the same dK and dV, in order. */
#define _POSIX_C_SOURCE 200809L /* sched_yield */
#include "chain.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/names.h"
#include "tables.h"
#include "threads.h"

typedef struct call {
    const attn_walk *walk;
    const attn_args *args;
    char *workers, *shared;
    const attn_chain_steps *steps;
    const attn_shares_target *target;
    int64_t groups; /* of all heads of a key head */
    int64_t spans;  /* that the keys are cut into */
    int64_t key_head;
    void *dK, *dV;
} call;

/* The group's own numbers join those of its head: groups end in order. */
static void add_to_head(const call *c, const attn_task *task, const attn_shares *own)
{
    const attn_walk *w = c->walk;
    const int64_t head = task->b * w->problem.shape.heads_q + task->h;
    attn_head_sums *sums = attn_head_sums_at(w, c->shared, head, 0);
    double *dw = attn_weight_sums_at(w, c->shared, head, 0);
    sums->scale += own->sums->scale;
    sums->slope += own->sums->slope;
    sums->sink += own->sums->sink;
    for (int64_t k = 0; dw && k < 2 * w->problem.shape.dim_qk; k++) dw[k] += own->dw[k];
    if (w->problem.gradients.bias_table) attn_table_sums_keep(task, 0, c->shared);
}

static void clear_numbers(const attn_walk *w, attn_head_sums *sums, double *dw)
{
    const attn_head_sums none = {0, 0, 0};
    *sums = none;
    for (int64_t k = 0; dw && k < 2 * w->problem.shape.dim_qk; k++) dw[k] = 0;
}

/* A group over one span of the keys. */
static void run_span(const call *c, char *memory, int64_t key_head, int64_t number, int64_t span, void *dK, void *dV)
{
    const attn_walk *w = c->walk;
    const attn_shape *shape = &w->problem.shape;
    const int64_t heads = shape->heads_q / shape->heads_kv, of_head = c->groups / heads, group = number % of_head;
    const int64_t blocks = attn_ceil_div(shape->len_kv, w->block_kv);
    const attn_interval keys = {span * blocks / c->spans * w->block_kv, (span + 1) * blocks / c->spans * w->block_kv};
    attn_task task = attn_task_of_head(w, c->args, memory, key_head * heads + number / of_head);
    attn_gradient_group *tiles = attn_part(&task, w->scratch.group);
    attn_shares to = {dK, dV, &tiles->sums, NULL, attn_sums_weights(&w->problem) ? attn_part(&task, w->scratch.group_dw) : NULL};
    if (span == 0) {
        clear_numbers(w, to.sums, to.dw);
        if (w->problem.gradients.bias_table) attn_table_sums_clear(&task);
        c->steps->open(&task, group * w->group, attn_min(w->group, w->tiles - group * w->group), tiles);
    }
    c->steps->walk(&task, tiles, keys, &to);
    if (span < c->spans - 1) return;
    c->steps->finish(&task, tiles, &to);
    add_to_head(c, &task, &to);
}

static void clear_sums(const attn_walk *w, void *dK, void *dV)
{
    const size_t rows = (size_t)w->problem.shape.len_kv, size = attn_dtype_bytes(w->compute);
    memset(dK, 0, rows * (size_t)w->ld_dK * size);
    memset(dV, 0, rows * (size_t)w->ld_dV * size);
}

/* Where a key head's sums are: in the caller's tensors, or at `dK` and `dV`. */
static attn_task open_sums(const call *c, char *memory, int64_t key_head, void **dK, void **dV)
{
    attn_task task = attn_task_of_key_head(c->walk, c->args, memory, key_head);
    if (c->walk->sums_in_place) {
        *dK = attn_key_row(&task, c->target->k, c->target->k_layout, 0);
        *dV = attn_key_row(&task, c->target->v, c->target->v_layout, 0);
    }
    clear_sums(c->walk, *dK, *dV);
    return task;
}

static void close_sums(const call *c, const attn_task *task, const void *dK, const void *dV)
{
    if (!c->walk->sums_in_place) attn_shares_store(task, c->target, dK, dV);
}

/* Many key heads: a task has one of its own, and no one to wait for. */
static void run_key_head(void *context, int64_t worker, int64_t key_head)
{
    const call *c = context;
    char *memory = c->workers + worker * c->walk->scratch.bytes;
    void *dK = memory + c->walk->scratch.dK, *dV = memory + c->walk->scratch.dV;
    const attn_task task = open_sums(c, memory, key_head, &dK, &dV);
    for (int64_t number = 0; number < c->groups; number++) run_span(c, memory, key_head, number, 0, dK, dV);
    close_sums(c, &task, dK, dV);
}

/*
 * Few key heads: one after the other, by a task for each worker.  Place n takes every at_once-th group from group n on, in the n-th
 * worker's memory; its step counts the spans that it has left behind it, and is odd while a task is at the next one.
 */
static atomic_llong *step_of(const call *c, int64_t place)
{
    return (atomic_llong *)(void *)(c->shared + c->walk->shared.counters) + place;
}

/* 1 if the group before is beyond these keys, or there is none. */
static int is_free(const call *c, int64_t place, int64_t done)
{
    const int64_t before = place > 0 ? place - 1 : c->walk->at_once - 1, needed = place > 0 ? done + 1 : done + 1 - c->spans;
    return needed <= 0 || atomic_load_explicit(step_of(c, before), memory_order_acquire) / 2 >= needed;
}

/* A place that can go on: takes it a span further and returns 1.  *left: whether it has any to go. */
static int try_place(const call *c, int64_t place, int *left)
{
    long long step = atomic_load_explicit(step_of(c, place), memory_order_acquire);
    const int64_t done = step / 2, number = done / c->spans * c->walk->at_once + place;
    if (number >= c->groups) return 0;
    *left = 1;
    if (step % 2 || !is_free(c, place, done)) return 0;
    if (!atomic_compare_exchange_strong_explicit(step_of(c, place), &step, step + 1, memory_order_acquire, memory_order_relaxed))
        return 0;
    run_span(c, c->workers + place * c->walk->scratch.bytes, c->key_head, number, done % c->spans, c->dK, c->dV);
    atomic_store_explicit(step_of(c, place), step + 2, memory_order_release);
    return 1;
}

/* Where no place can go on, another task is at work: the first of the groups that are left waits for nobody. */
static void run_places(void *context, int64_t worker, int64_t task)
{
    const call *c = context;
    (void)worker, (void)task;
    for (int left = 1; left;) {
        int moved = left = 0;
        for (int64_t place = 0; place < c->walk->at_once; place++) moved |= try_place(c, place, &left);
        if (left && !moved) (void)sched_yield();
    }
}

static void run_together(call *c)
{
    const attn_walk *w = c->walk;
    c->dK = c->shared + w->shared.dK, c->dV = c->shared + w->shared.dV;
    const attn_task task = open_sums(c, c->workers, c->key_head, &c->dK, &c->dV);
    for (int64_t place = 0; place < w->at_once; place++) atomic_init(step_of(c, place), 0);
    attn_threads_run(w->parallel_for, w->parallel_context, w->workers, w->at_once, run_places, c);
    close_sums(c, &task, c->dK, c->dV);
}

void attn_chain_run(const attn_walk *walk, const attn_args *args, void *workspace, const attn_chain_steps *steps,
                    const attn_shares_target *target)
{
    enum { SPANS = 8 }; /* for each place: at the begin and the end of a head, and under a causal mask, one waits for another */
    const attn_shape *shape = &walk->problem.shape;
    const int64_t key_heads = shape->batch * shape->heads_kv, blocks = attn_ceil_div(shape->len_kv, walk->block_kv);
    call c = {.walk = walk, .args = args, .workers = workspace, .steps = steps, .target = target, .spans = 1};
    c.shared = attn_shared_of(walk, workspace);
    for (int64_t head = 0; head < shape->batch * shape->heads_q; head++) {
        clear_numbers(walk, attn_head_sums_at(walk, c.shared, head, 0), attn_weight_sums_at(walk, c.shared, head, 0));
        if (walk->problem.gradients.bias_table) attn_table_sums_begin(walk, head, 0, c.shared);
    }
    if (key_heads == 0) return;
    c.groups = shape->heads_q / shape->heads_kv * attn_ceil_div(walk->tiles, walk->group);
    if (walk->at_once == 1) {
        attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, key_heads, run_key_head, &c);
        return;
    }
    c.spans = attn_min(blocks, SPANS * walk->at_once);
    for (c.key_head = 0; c.key_head < key_heads; c.key_head++) run_together(&c);
}
