/* SPDX-License-Identifier: MIT
 *
 * rows.c - query heads that share a key head, as rows of one tile.  A tile has a row for each query of one head, so few queries
 * leave most of its lanes empty, and every head of the group walks over the same keys.  Here row i * heads + h of a key head is
 * query i of the h-th query head of its group: rows are gathered before the walk, and its results are scattered after it.  What a
 * query sees depends only on its position, so the walk is that of tiles, over a problem with one query head for each key head.
 */
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "../../task/task.h"
#include "../../threads/threads.h"
#include "../tiles/tiles.h"

/* Offsets in the workspace: q, o and lse of the folded problem, dense. */
typedef struct folded_rows {
    int64_t Q, O, lse;
    int64_t bytes;
} folded_rows;

typedef struct attn_rows_walk {
    attn_forward_walk forward; /* over the folded problem */
    int64_t heads;             /* of a group */
    folded_rows at;
} attn_rows_walk;

/* Dense rows of each key head; returns 0 if their strides overflow. */
static int dense(attn_layout *layout, const attn_shape *s, int64_t dim)
{
    int64_t *stride = layout->stride;
    stride[3] = 1;
    stride[2] = dim;
    return attn_mul(s->len_q, dim, &stride[1]) && attn_mul(stride[1], s->heads_q, &stride[0]);
}

/* Where so many rows lie.  Returns 0 if their bytes overflow. */
static int place_rows(const attn_resolved *folded, int64_t count, folded_rows *at)
{
    const int lse = folded->has.lse;
    const attn_part_of parts[] = {
        {&at->Q, count, folded->shape.dim_qk, attn_dtype_bytes(folded->at.q.dtype)},
        {&at->O, count, folded->shape.dim_v, attn_dtype_bytes(folded->at.o.dtype)},
        {&at->lse, lse ? count : 0, 1, lse ? attn_dtype_bytes(folded->at.lse.dtype) : 1},
    };
    at->bytes = 0;
    return attn_place(parts, sizeof parts / sizeof *parts, &at->bytes);
}

/* The problem that the walk solves, and the places of its rows.  Returns 0 if a size overflows. */
static int fold(const attn_resolved *problem, attn_resolved *folded, attn_rows_walk *rows)
{
    attn_shape *s = &folded->shape;
    int64_t count;
    *folded = *problem;
    rows->heads = s->heads_q / s->heads_kv;
    folded->rows_of_query = rows->heads;
    s->heads_q = s->heads_kv;
    if (!attn_mul(s->len_q, rows->heads, &s->len_q)) return 0;
    if (!dense(&folded->at.q, s, s->dim_qk) || !dense(&folded->at.o, s, s->dim_v) || !dense(&folded->at.lse, s, 1)) return 0;
    if (!attn_mul(s->len_q, s->heads_q, &count) || !attn_mul(count, s->batch, &count)) return 0;
    return place_rows(folded, count, &rows->at);
}

typedef struct call {
    const attn_rows_walk *rows;
    const attn_walk *walk;
    const attn_resolved *problem; /* the caller's */
    const attn_args *args;        /* the caller's */
    const attn_args *prepared;    /* the walk's */
} call;

static char *row_of_caller(const call *c, const attn_task *task, const void *base, const attn_layout *layout, int64_t h, int64_t i)
{
    const int64_t *stride = layout->stride,
                  entry = attn_is_packed(c->problem) ? task->visibility.first_q * stride[2] : task->b * stride[0];
    const int64_t at = entry + (task->g * c->rows->heads + h) * stride[1] + i * stride[2];
    return (char *)(uintptr_t)base + at * (int64_t)attn_dtype_bytes(layout->dtype);
}

/* The number of queries in a key head's task. */
static int64_t queries_of(const call *c, const attn_task *task) { return task->visibility.len_q / c->rows->heads; }

static void gather(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_resolved *own = &c->walk->problem;
    const attn_task task = attn_task_of_head(c->walk, c->prepared, NULL, number);
    const size_t bytes = (size_t)own->shape.dim_qk * attn_dtype_bytes(own->at.q.dtype);
    (void)worker;
    for (int64_t i = 0; bytes && i < queries_of(c, &task); i++)
        for (int64_t h = 0; h < c->rows->heads; h++)
            memcpy(attn_query_row(&task, c->prepared->q, &own->at.q, i * c->rows->heads + h),
                   row_of_caller(c, &task, c->args->q, &c->problem->at.q, h, i), bytes);
}

static void scatter_one(const call *c, const attn_task *task, int64_t queries, const void *from, const attn_layout *own, void *to,
                        const attn_layout *caller, int64_t dim)
{
    const size_t bytes = (size_t)dim * attn_dtype_bytes(own->dtype);
    for (int64_t i = 0; bytes && i < queries; i++)
        for (int64_t h = 0; h < c->rows->heads; h++)
            memcpy(row_of_caller(c, task, to, caller, h, i), attn_query_row(task, from, own, i * c->rows->heads + h), bytes);
}

/* Rows past the last query are written too, like all padding, except those of sequences that another walk computes. */
static void scatter(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_resolved *own = &c->walk->problem;
    const attn_task task = attn_task_of_head(c->walk, c->prepared, NULL, number);
    const int64_t all = own->shape.len_q / c->rows->heads;
    const int exact = task.visibility.of_other_walk || attn_is_packed(c->problem) || c->args->schedule;
    const int64_t queries = exact ? queries_of(c, &task) : all;
    (void)worker;
    scatter_one(c, &task, queries, c->prepared->o, &own->at.o, c->args->o, &c->problem->at.o, own->shape.dim_v);
    if (own->has.lse) scatter_one(c, &task, queries, c->prepared->lse, &own->at.lse, c->args->lse, &c->problem->at.lse, 1);
}

static void run(const call *c, void (*task)(void *context, int64_t worker, int64_t number))
{
    const attn_walk *w = c->walk;
    call copy = *c;
    attn_threads_run(w->parallel_for, w->parallel_context, w->workers, w->problem.shape.batch * w->problem.shape.heads_q, task,
                     &copy);
}

static int init(attn_walk *walk, const attn_setting *setting)
{
    attn_rows_walk *plan = (attn_rows_walk *)walk;
    plan->forward.prepare.problem = *setting->problem;
    return fold(setting->problem, &walk->problem, plan) && attn_forward_init(&plan->forward, setting, plan->at.bytes);
}

static void run_rows(const attn_walk *walk, const attn_args *args, char *workspace)
{
    const attn_rows_walk *plan = (const attn_rows_walk *)walk;
    folded_rows at = plan->at;
    attn_args folded = *args;
    if (args->schedule) (void)place_rows(&walk->problem, args->schedule->units, &at);
    folded.q = workspace + at.Q;
    folded.o = workspace + at.O;
    folded.lse = workspace + at.lse;
    const call c = {plan, walk, &plan->forward.prepare.problem, args, &folded};
    run(&c, gather);
    attn_forward_run(&plan->forward, args, &folded, workspace + at.bytes);
    run(&c, scatter);
}

/* ---- schedules: as tiles; a unit is a row ---- */

static int64_t most_pieces(const attn_walk *walk) { return attn_forward_cut.most(walk); }
static int64_t pieces_of_item(const attn_walk *walk) { return attn_forward_cut.group(walk); }
static int64_t tasks_of_item(const attn_walk *walk) { return attn_forward_cut.tasks(walk); }

static int64_t rows_of_entry(const attn_walk *walk, const attn_visibility *seen, attn_scheduled_entry *entry)
{
    (void)attn_forward_cut.pieces(walk, seen, entry);
    return seen->len_q * walk->problem.shape.heads_q;
}

static int64_t cost_of_item(const attn_walk *walk, const attn_visibility *seen, const attn_scheduled_entry *entry,
                            const attn_item *item)
{
    return attn_forward_cut.cost(walk, seen, entry, item);
}

static int64_t bytes_of_schedule(const attn_walk *walk, int64_t units)
{
    const attn_rows_walk *plan = (const attn_rows_walk *)walk;
    folded_rows at;
    (void)place_rows(&walk->problem, units, &at);
    return walk->bytes == 0 ? 0 : walk->bytes - plan->at.bytes + at.bytes;
}

static const attn_walk_cut cut = {most_pieces,   pieces_of_item, tasks_of_item, 4,
                                  rows_of_entry, cost_of_item,   NULL,          bytes_of_schedule};

/* This walk takes groups of query heads each of which has fewer queries than a tile. */
static int limits(const attn_resolved *p, const attn_kernel_row *tiles, attn_walk_limits *to)
{
    if (p->shape.heads_q == p->shape.heads_kv || p->shape.heads_q == 0 || p->shape.heads_kv == 0) return 0;
    const attn_tile_shape *shape = &attn_kernel_product(tiles)->shape;
    to->max_q = shape->lanes * shape->vectors - 1;
    return to->max_q > 0;
}

const attn_walk_type attn_walk_rows = {
    .name = "rows",
    .op = ATTN_FORWARD,
    .supported = ATTN_USES(CAUSAL) | ATTN_USES(ALIGNED) | ATTN_USES(ORIGIN) | ATTN_USES(WINDOW) | ATTN_USES(CHUNK) |
                 ATTN_USES(LENGTHS) | ATTN_USES(PACKED) | ATTN_USES(RAGGED) | ATTN_USES(PAGED) | ATTN_USES(SOFTCAP) |
                 ATTN_USES(QUANTISED) | ATTN_USES(GROUPS) | ATTN_USES(INVARIANT) | ATTN_USES(REPRODUCIBLE) | ATTN_USES(TREE) |
                 ATTN_USES(CHOICES),
    .why = "query heads in one tile, since each has few queries",
    .limits = limits,
    .size = sizeof(attn_rows_walk),
    .init = init,
    .run = run_rows,
    .cut = &cut,
};
