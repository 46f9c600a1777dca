/* SPDX-License-Identifier: MIT
 *
 * bias_gradient.c - the gradient of an additive bias is dS, and in double backward R.  If each score has its own element of the
 * bias, the backward walk stores dS as it goes.  If scores share elements, a separate walk gives each task a region of the bias and
 * goes through all scores that share it, in order: two more products, and no sum that depends on threads.
 */
#include "bias_gradient.h"

#include <string.h>

#include "../base/names.h"
#include "../threads/threads.h"
#include "../tile/runs.h"

static const attn_layout *layout_of(const attn_resolved *p)
{
    return p->op == ATTN_BACKWARD ? &p->at.grad_bias : &p->at.second_bias;
}

static void *output_of(const attn_resolved *p, const attn_args *args)
{
    return p->op == ATTN_BACKWARD ? args->grad_bias : args->second_bias;
}

/* For each axis (b, h, i, j), 1 if the bias is broadcast over it. */
static void broadcast_axes(const attn_resolved *p, int axes[4])
{
    for (int axis = 0; axis < 4; axis++) axes[axis] = p->at.bias.stride[axis] == 0;
}

int attn_bias_is_broadcast(const attn_resolved *problem)
{
    const int64_t sizes[4] = {problem->shape.batch, problem->shape.heads_q, problem->shape.len_q, problem->shape.len_kv};
    int axes[4], any = 0;
    broadcast_axes(problem, axes);
    for (int axis = 0; axis < 4; axis++) any |= axes[axis] && sizes[axis] != 1;
    return any;
}

void attn_clear_bias_gradient(const attn_task *task, int64_t number)
{
    const attn_tile tile = attn_tile_at(task->walk, number);
    const attn_resolved *p = &task->walk->problem;
    const attn_layout *layout = layout_of(p);
    size_t bytes = (size_t)p->shape.len_kv * attn_dtype_bytes(layout->dtype);
    for (int64_t i = 0; i < tile.rows && bytes; i++)
        memset(attn_pair_at(task, output_of(p, task->args), layout, tile.first + i, 0), 0, bytes);
}

void attn_store_bias_gradient(const attn_task *task, const attn_tile *tile, int64_t low, int64_t n, const void *dS)
{
    const attn_resolved *p = &task->walk->problem;
    const attn_layout *layout = layout_of(p);
    task->walk->kernel.storage->store_columns(tile->width, tile->rows, n, 1, dS,
                                              attn_pair_at(task, output_of(p, task->args), layout, tile->first, low), layout->dtype,
                                              layout->stride[2]);
}

/* One region of the bias: an entry, a head, a tile of queries and a block of keys, or all of an axis that is broadcast. */
typedef struct region {
    int64_t b_first, b_end, h_first, h_end, t_first, t_end, j_first, j_end;
} region;

typedef struct call {
    const attn_walk *walk;
    const attn_args *args;
    const attn_bias_steps *steps;
    char *workers, *shared;
    int axes[4];
    int64_t blocks;
} call;

static region region_at(const call *c, int64_t number)
{
    const attn_walk *w = c->walk;
    const attn_shape *s = &w->problem.shape;
    const int64_t counts[4] = {s->batch, s->heads_q, w->tiles, c->blocks};
    int64_t first[4], end[4];
    for (int axis = 3; axis >= 0; axis--) {
        int64_t n = c->axes[axis] ? 1 : counts[axis];
        first[axis] = c->axes[axis] ? 0 : number % n;
        end[axis] = c->axes[axis] ? counts[axis] : first[axis] + 1;
        number /= n;
    }
    region r = {
        first[0], end[0], first[1], end[1], first[2], end[2], first[3] * w->block_kv, attn_min(end[3] * w->block_kv, s->len_kv)};
    return r;
}

/* Adds one tile of one head to a region. */
static void add_tile(const call *c, const attn_task *task, const region *r, int64_t t, void *pairs)
{
    const attn_walk *w = c->walk;
    attn_gradient_tile tile;
    if (!c->steps->open(task, t, &tile, c->shared)) return;
    int64_t low = attn_max(r->j_first, tile.keys.low), high = attn_min(r->j_end, tile.keys.high);
    int64_t size = (int64_t)attn_dtype_bytes(w->compute);
    for (attn_interval run = {low, low}; attn_task_next(task, &tile.tile, tile.empty != NULL, high, &run);) {
        const void *dS = c->steps->derive(task, &tile, run.low, run.high);
        int64_t row = c->axes[3] ? 0 : run.low - r->j_first;
        w->kernel.gradient->reduce_pairs(tile.tile.rows, run.high - run.low, dS, c->axes[2], c->axes[3],
                                         (char *)pairs + row * w->tile_q * size);
    }
}

static void run_region(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_resolved *p = &w->problem;
    const attn_layout *layout = layout_of(p);
    char *memory = c->workers + worker * w->worker_bytes;
    void *pairs = memory + attn_sums_of(w)->pairs;
    region r = region_at(c, number);
    attn_task task;

    memset(pairs, 0, (size_t)(w->block_kv * w->tile_q) * attn_dtype_bytes(w->compute));
    for (int64_t b = r.b_first; b < r.b_end; b++)
        for (int64_t h = r.h_first; h < r.h_end; h++) {
            task = attn_task_of_head(w, c->args, memory, b * p->shape.heads_q + h);
            for (int64_t t = r.t_first; t < r.t_end; t++) add_tile(c, &task, &r, t, pairs);
        }

    attn_tile tile = attn_tile_at(w, r.t_first);
    int64_t rows = c->axes[2] ? 1 : tile.rows, n = c->axes[3] ? 1 : r.j_end - r.j_first;
    int64_t at = (c->axes[0] ? 0 : r.b_first) * layout->stride[0] + (c->axes[1] ? 0 : r.h_first) * layout->stride[1] +
                 (c->axes[2] ? 0 : tile.first) * layout->stride[2] + (c->axes[3] ? 0 : r.j_first) * layout->stride[3];
    w->kernel.storage->store_columns(c->axes[2] ? 1 : tile.width, rows, n, 1, pairs,
                                     (char *)output_of(p, c->args) + at * (int64_t)attn_dtype_bytes(layout->dtype), layout->dtype,
                                     layout->stride[2]);
}

/* If a broadcast axis is empty, its one element is an empty sum. */
static void store_zeros(const attn_resolved *p, const attn_args *args, const int axes[4])
{
    const attn_layout *layout = layout_of(p);
    const int64_t sizes[4] = {p->shape.batch, p->shape.heads_q, p->shape.len_q, p->shape.len_kv};
    const int64_t size = (int64_t)attn_dtype_bytes(layout->dtype), *stride = layout->stride;
    int64_t n[4];
    for (int axis = 0; axis < 4; axis++) n[axis] = axes[axis] ? 1 : sizes[axis];
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t h = 0; h < n[1]; h++)
            for (int64_t i = 0; i < n[2] && n[3]; i++)
                memset((char *)output_of(p, args) + (b * stride[0] + h * stride[1] + i * stride[2]) * size, 0,
                       (size_t)(n[3] * size));
}

void attn_sum_bias_gradient(const attn_walk *walk, const attn_args *args, char *workspace, const attn_bias_steps *steps)
{
    const attn_shape *s = &walk->problem.shape;
    call c = {walk, args, steps, workspace, attn_shared_of(walk, workspace), {0}, attn_ceil_div(s->len_kv, walk->block_kv)};
    broadcast_axes(&walk->problem, c.axes);
    const int64_t counts[4] = {s->batch, s->heads_q, walk->tiles, c.blocks};
    int64_t regions = 1, tiles = 1;
    for (int axis = 0; axis < 4; axis++) {
        if (!c.axes[axis]) regions *= counts[axis];
        tiles = counts[axis] ? tiles : 0;
    }
    if (tiles == 0) {
        store_zeros(&walk->problem, args, c.axes);
        return;
    }
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, regions, run_region, &c);
}
