/* SPDX-License-Identifier: MIT
 * rows.c - short heads forward, with a causal mask: rows of queries, keys in the lanes. */
#include <string.h>

#include "../../base/names.h"
#include "../../task/task.h"
#include "../../threads/threads.h"
#include "small.h"

typedef struct attn_small_rows {
    attn_walk walk;
    int64_t task_q;    /* queries of a task */
    int64_t ld_scores; /* row length of scores */
    int looks_ahead;   /* what a worker's next head needs is prefetched */
    int64_t Kt, K, V;  /* offsets in a worker's memory: a tile of keys; keys and values out of their pages */
    int64_t S;
    int64_t factors; /* what rows of O are multiplied by */
} attn_small_rows;

static int init(attn_walk *walk, const attn_setting *setting)
{
    attn_small_rows *plan = (attn_small_rows *)walk;
    const attn_shape *shape = &walk->problem.shape;
    const size_t size = attn_dtype_bytes(walk->compute);
    const int64_t lanes = walk->kernel.lanes, len_q = attn_small_queries(walk), len_kv = attn_small_keys(walk);
    const int64_t rows = attn_ceil_div(len_q, lanes) * lanes, paged = attn_is_paged(&walk->problem) ? len_kv : 0;
    int64_t heads;
    if (!attn_mul(shape->batch, shape->heads_q, &heads)) return 0;
    plan->looks_ahead = !attn_is_brief(&walk->problem);
    plan->task_q = attn_small_queries_of_task(walk, heads, setting->threads);
    plan->ld_scores = attn_small_row(walk);
    walk->tile_q = lanes * walk->kernel.vectors;
    walk->block_kv = len_kv;
    walk->tiles = attn_ceil_div(shape->len_q, walk->tile_q);
    walk->tiling = ATTN_TILING_EVEN;
    if (!attn_mul(heads, attn_ceil_div(len_q, plan->task_q), &walk->tasks)) return 0;
    const attn_part_of parts[] = {
        {&plan->Kt, shape->dim_qk, walk->tile_q, size},
        {&plan->K, paged, shape->dim_qk, size},
        {&plan->V, paged, shape->dim_v, size},
        {&plan->S, rows, plan->ld_scores, size},
        {&plan->factors, rows, 1, size},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->worker_bytes) && attn_small_finish(walk, setting->threads);
}

typedef struct call {
    const attn_small_rows *plan;
    const attn_args *args;
    char *workspace;
} call;

/* O of some queries of a head. */
static void run_task(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_small_rows *plan = c->plan;
    const attn_walk *w = &plan->walk;
    const attn_resolved *p = &w->problem;
    const attn_small_part *k = w->kernel.small;
    const attn_layout *lse = &p->at.lse;
    const int64_t parts = attn_ceil_div(attn_small_queries(w), plan->task_q), head = number / parts,
                  first = number % parts * plan->task_q;
    const attn_task task = attn_task_of_head(w, c->args, c->workspace + worker * w->worker_bytes, head);
    const int64_t len_q = task.sight.len_q, len_kv = task.sight.len_kv, dim_qk = p->shape.dim_qk;
    const int64_t rows = attn_min(plan->task_q, len_q - first), seen = attn_seen_by_first(&task) + first;
    if (task.sight.of_others || rows <= 0) return;
    attn_soon soon = plan->looks_ahead ? attn_small_look_ahead(&task, head + w->workers) : (attn_soon){0};
    void *Kt = attn_part(&task, plan->Kt), *S = attn_part(&task, plan->S), *factors = attn_part(&task, plan->factors);
    const attn_small_sources from = attn_small_sources_of(&task, plan->K, plan->V);

    for (int64_t t = 0; t < attn_key_tiles(w, len_kv); t++) {
        const attn_key_tile tile = attn_key_tile_at(w, len_kv, t);
        if (tile.first >= seen + rows) break; /* after what the last of them sees */
        const char *K = (const char *)from.K + tile.first * from.ldk * (int64_t)attn_dtype_bytes(w->compute);
        w->kernel.storage->pack_query(tile.width, tile.rows, dim_qk, K, p->at.k.dtype, from.ldk, attn_task_scale(&task), Kt);
        k->score(tile.width, rows, dim_qk, attn_query_row(&task, c->args->q, &p->at.q, first), p->at.q.stride[2], Kt,
                 seen - tile.first, attn_small_element(w, S, tile.first), plan->ld_scores, &soon);
    }
    k->weigh(rows, len_kv, seen, S, plan->ld_scores, factors, p->has.lse ? attn_query_row(&task, c->args->lse, lse, first) : NULL,
             lse->stride[2]);
    const attn_short_product out = {.rows = rows,
                                    .steps = len_kv,
                                    .dim = p->shape.dim_v,
                                    .A = S,
                                    .row = plan->ld_scores,
                                    .step = 1,
                                    .B = from.V,
                                    .ldb = from.ldv,
                                    .from = -len_q,
                                    .to = seen,
                                    .factors = factors,
                                    .factor_step = 1,
                                    .C = attn_query_row(&task, c->args->o, &p->at.o, first),
                                    .ldc = p->at.o.stride[2]};
    if (attn_small_multiply(w, &out, &soon)) attn_small_clear_empty(w, rows, factors, out.C);
}

static void run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    call c = {(const attn_small_rows *)walk, args, workspace};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, run_task, &c);
}

static int limits(const attn_resolved *p, const attn_kernel_row *row, attn_walk_limits *to)
{
    return p->mask.causal && attn_small_limits(p, row, to);
}

const attn_walk_type attn_walk_small_rows = {
    .name = "small rows",
    .op = ATTN_FORWARD,
    .supported = ATTN_USES(CAUSAL) | ATTN_USES(ALIGNED) | ATTN_USES(ORIGIN) | ATTN_USES(LENGTHS) | ATTN_USES(PACKED) |
                 ATTN_USES(PAGED) | ATTN_USES(SCALES) | ATTN_USES(GROUPS),
    .why = "all of a head at once, since it is short",
    .limits = limits,
    .size = sizeof(attn_small_rows),
    .init = init,
    .run = run,
};
