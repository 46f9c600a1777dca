/* SPDX-License-Identifier: MIT
 * tiles.c - short heads forward, without a mask: tiles of queries, whose scores have queries in the lanes. */
#include <string.h>

#include "../../base/names.h"
#include "../../task/task.h"
#include "../../threads/threads.h"
#include "small.h"

typedef struct attn_small_tiles {
    attn_walk walk;
    int64_t tiles_of_task;
    int prefetches_next;   /* prefetches the data of a worker's next head */
    int64_t Qt, K, V;      /* offsets in a worker's memory: a tile of queries; keys and values gathered from pages */
    int64_t S;             /* scores of a tile */
    int64_t most, factors; /* per row: the largest score, and the factor of O */
} attn_small_tiles;

/* 1 if the last queries leave so much of a vector empty that dedicated steps are faster. */
static int has_four_tile(const attn_walk *walk, int64_t len_q)
{
    const int64_t lanes = walk->kernel.lanes, left = len_q % lanes;
    return walk->kernel.small->four.score && left > 0 && left <= ATTN_SHORT_FOUR;
}

/* Tiles of a sequence. */
static int64_t tiles_of_queries(const attn_walk *walk, int64_t len_q)
{
    const int four = has_four_tile(walk, len_q);
    return attn_ceil_div(attn_ceil_div(len_q, walk->kernel.lanes) - four, walk->kernel.vectors) + four;
}

static int init(attn_walk *walk, const attn_setting *setting)
{
    attn_small_tiles *plan = (attn_small_tiles *)walk;
    const attn_shape *shape = &walk->problem.shape;
    const size_t size = attn_dtype_bytes(walk->compute);
    const int64_t lanes = walk->kernel.lanes, len_q = attn_small_queries(walk), len_kv = attn_small_keys(walk);
    const int64_t rows = attn_ceil_div(len_q, lanes) * lanes, paged = attn_is_paged(&walk->problem) ? len_kv : 0;
    int64_t heads;
    if (!attn_mul(shape->batch, shape->heads_q, &heads)) return 0;
    const int64_t task_q = attn_small_queries_of_task(walk, heads, setting->threads);
    plan->prefetches_next = !attn_is_serial(&walk->problem);
    walk->tile_q = lanes * walk->kernel.vectors;
    walk->block_kv = len_kv;
    walk->tiles = tiles_of_queries(walk, len_q);
    walk->tiling = has_four_tile(walk, len_q) ? ATTN_TILING_FOUR : ATTN_TILING_EVEN;
    plan->tiles_of_task = task_q == len_q ? walk->tiles : attn_ceil_div(task_q, walk->tile_q);
    if (!attn_mul(heads, attn_ceil_div(walk->tiles, plan->tiles_of_task), &walk->tasks)) return 0;
    const attn_part_of parts[] = {
        {&plan->Qt, shape->dim_qk, walk->tile_q, size},
        {&plan->K, paged, shape->dim_qk, size},
        {&plan->V, paged, shape->dim_v, size},
        {&plan->S, len_kv, walk->tile_q, size},
        {&plan->most, rows, 1, size},
        {&plan->factors, rows, 1, size},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->worker_bytes) && attn_small_finish(walk, setting->threads);
}

typedef struct call {
    const attn_small_tiles *plan;
    const attn_args *args;
    char *workspace;
} call;

/* Takes from the end of the prefetch list as many rows as a product of scores prefetches.  If none are left, *next and *ld stay as
 * they are; the products with values begin at the other end. */
static void take_rows(attn_prefetch *prefetch, int64_t rows, int64_t size, const void **next, int64_t *ld)
{
    if (prefetch->next >= prefetch->count - 1) return;
    struct attn_prefetch_rows *last = &prefetch->list[prefetch->count - 1];
    *next = (const void *)last->at;
    *ld = last->stride / size;
    last->at += (uintptr_t)(rows * last->stride);
    last->rows -= rows;
    if (last->rows <= 0) prefetch->count--;
}

/* O of some tiles of queries of a head.  Keys and values are read in place, and O is written once. */
static void run_task(void *context, int64_t worker, int64_t task_number)
{
    const call *c = context;
    const attn_small_tiles *plan = c->plan;
    const attn_walk *w = &plan->walk;
    const int64_t number = attn_scheduled_number(c->args, task_number, attn_small_cut.tasks(w));
    const attn_resolved *p = &w->problem;
    const attn_small_part *k = w->kernel.small;
    const attn_layout *lse = &p->at.lse;
    const int64_t groups = plan->tiles_of_task == w->tiles ? 1 : attn_ceil_div(w->tiles, plan->tiles_of_task),
                  dim_qk = p->shape.dim_qk;
    const int64_t head = groups == 1 ? number : number / groups, group = number - head * groups,
                  first = group * plan->tiles_of_task;
    const attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, head);
    if (task.visibility.of_other_walk) return;
    const int64_t len_q = task.visibility.len_q, len_kv = task.visibility.len_kv, tiles = tiles_of_queries(w, len_q);
    const int64_t end = group == groups - 1 ? tiles : attn_min(first + plan->tiles_of_task, tiles);
    const int four = has_four_tile(w, len_q);
    if (first >= end) return;
    attn_prefetch prefetch = plan->prefetches_next ? attn_small_prefetch(&task, head + w->workers) : (attn_prefetch){0};
    void *Qt = attn_part(&task, plan->Qt), *S = attn_part(&task, plan->S), *factors = attn_part(&task, plan->factors);
    void *most = attn_part(&task, plan->most);
    const attn_small_sources from = attn_small_sources_of(&task, plan->K, plan->V);

    for (int64_t t = first; t < end; t++) {
        const attn_tile tile = four ? attn_tile_before_four(w, t, tiles, len_q)
                                    : attn_tile_dealt(w, t, tiles, attn_ceil_div(len_q, w->kernel.lanes), 0, len_q);
        const attn_short_lanes *step = four && t == tiles - 1 ? &k->four : &k->tile;
        w->kernel.storage->pack_query(tile.width, tile.rows, dim_qk, attn_query_row(&task, c->args->q, &p->at.q, tile.first),
                                      p->at.q.dtype, p->at.q.stride[2], attn_task_scale(&task), Qt);
        const void *next = from.V;
        int64_t next_ld = from.ldv;
        take_rows(&prefetch, len_kv, (int64_t)attn_dtype_bytes(w->compute), &next, &next_ld);
        (p->invariant ? step->score_in_order : step->score)(tile.width, len_kv, dim_qk, Qt, from.K, from.ldk, S, most, next,
                                                            next_ld);
        char *o = attn_query_row(&task, c->args->o, &p->at.o, tile.first);
        const int empty =
            step->exponentiate(tile.width, tile.rows, len_kv, S, most, factors,
                               p->has.lse ? attn_query_row(&task, c->args->lse, lse, tile.first) : NULL, lse->stride[2]);
        step->values(tile.rows, len_kv, p->shape.dim_v, S, from.V, from.ldv, factors, o, p->at.o.stride[2], &prefetch);
        if (empty) attn_small_clear_empty(w, tile.rows, factors, o);
    }
}

static void run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    call c = {(const attn_small_tiles *)walk, args, workspace};
    attn_scheduled_run(walk, args, walk->tasks, attn_small_cut.tasks(walk), run_task, &c);
}

/* Values that stay in a level 1 cache of 32 KB with the strips of scores that they are multiplied by. */
enum { MAX_VALUE_BYTES = 26 << 10 };

static int limits(const attn_resolved *p, const attn_kernel_row *row, attn_walk_limits *to)
{
    if (!attn_small_limits(p, row, to)) return 0;
    const int64_t value_bytes = p->shape.dim_v * (int64_t)attn_dtype_bytes(row->compute);
    const int64_t most = attn_min(attn_block_of_tiles(p, attn_kernel_product(row)), MAX_VALUE_BYTES / value_bytes);
    to->small = (attn_small){1, ATTN_SMALL_TOKENS, attn_min(ATTN_SMALL_TOKENS, most), ATTN_SMALL_TOKENS};
    return to->small.max_kv > 0;
}

const attn_walk_type attn_walk_small_tiles = {
    .name = "small tiles",
    .op = ATTN_FORWARD,
    .supported = ATTN_USES(ORIGIN) | ATTN_USES(LENGTHS) | ATTN_USES(PACKED) | ATTN_USES(RAGGED) | ATTN_USES(PAGED) |
                 ATTN_USES(SCALES) | ATTN_USES(GROUPS) | ATTN_USES(INVARIANT) | ATTN_USES(REPRODUCIBLE),
    .why = "a whole head at once, since it is short",
    .limits = limits,
    .size = sizeof(attn_small_tiles),
    .init = init,
    .run = run,
    .cut = &attn_small_cut,
};
