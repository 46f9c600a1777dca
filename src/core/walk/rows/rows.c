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

typedef struct attn_rows_walk {
    attn_forward_walk forward; /* over the folded problem */
    int64_t heads;             /* of a group */
    int64_t Q, O, lse;         /* offsets in the workspace: q, o and lse of the folded problem, dense */
    int64_t bytes;
} attn_rows_walk;

/* Dense rows of each key head; returns 0 if their size overflows. */
static int dense(attn_layout *layout, const attn_shape *s, int64_t dim, int64_t *elements)
{
    int64_t *stride = layout->stride;
    stride[3] = 1;
    stride[2] = dim;
    return attn_mul(s->len_q, dim, &stride[1]) && attn_mul(stride[1], s->heads_q, &stride[0]) &&
           attn_mul(stride[0], s->batch, elements);
}

/* The problem that the walk solves, and the places of its rows.  Returns 0 if a size overflows. */
static int fold(const attn_resolved *problem, attn_resolved *folded, attn_rows_walk *rows)
{
    attn_shape *s = &folded->shape;
    int64_t q, o, lse;
    *folded = *problem;
    rows->heads = s->heads_q / s->heads_kv;
    folded->rows_of_query = rows->heads;
    s->heads_q = s->heads_kv;
    if (!attn_mul(s->len_q, rows->heads, &s->len_q)) return 0;
    if (!dense(&folded->at.q, s, s->dim_qk, &q) || !dense(&folded->at.o, s, s->dim_v, &o) || !dense(&folded->at.lse, s, 1, &lse))
        return 0;
    const attn_part_of parts[] = {
        {&rows->Q, 1, q, attn_dtype_bytes(folded->at.q.dtype)},
        {&rows->O, 1, o, attn_dtype_bytes(folded->at.o.dtype)},
        {&rows->lse, 1, folded->has.lse ? lse : 0, folded->has.lse ? attn_dtype_bytes(folded->at.lse.dtype) : 1},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &rows->bytes);
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
    const int64_t queries = task.visibility.of_other_walk || attn_is_packed(c->problem) ? queries_of(c, &task) : all;
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
    return fold(setting->problem, &walk->problem, plan) && attn_forward_init(&plan->forward, setting, plan->bytes);
}

static void run_rows(const attn_walk *walk, const attn_args *args, char *workspace)
{
    const attn_rows_walk *plan = (const attn_rows_walk *)walk;
    attn_args folded = *args;
    folded.q = workspace + plan->Q;
    folded.o = workspace + plan->O;
    folded.lse = workspace + plan->lse;
    const call c = {plan, walk, &plan->forward.prepare.problem, args, &folded};
    run(&c, gather);
    attn_forward_run(&plan->forward, args, &folded, workspace + plan->bytes);
    run(&c, scatter);
}

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
                 ATTN_USES(LENGTHS) | ATTN_USES(PACKED) | ATTN_USES(PAGED) | ATTN_USES(SOFTCAP) | ATTN_USES(INTEGERS) |
                 ATTN_USES(GROUPS) | ATTN_USES(INVARIANT) | ATTN_USES(REPRODUCIBLE),
    .why = "query heads in one tile, since each has few queries",
    .limits = limits,
    .size = sizeof(attn_rows_walk),
    .init = init,
    .run = run_rows,
};
