/* SPDX-License-Identifier: MIT
 *
 * jvp.c - the walk of forward-mode differentiation.  Primes mark tangents:
 *
 *      for each task (a query tile):                                       Q, Q', O, lse
 *          for each block of keys that it sees:
 *              score, modify      S                                        as in forward
 *              tangents           S' = f'(x) scale (Q' K^T + Q K'^T) + bias'
 *              accumulate         P = exp(S - lse),  mu += P S',  A += (P S') V + P V'
 *          lse' = mu,  O' = A - mu O
 *
 * P is recomputed from lse, so nothing is rescaled and a block costs five products.
 */
#include "../../base/checked.h"
#include "../../gradient/tangent.h"
#include "../../threads/threads.h"
#include "../walks.h"

typedef struct attn_jvp_walk {
    attn_gradient_walk gradient;
    attn_tangents tangents;
} attn_jvp_walk;

static int init(attn_walk *walk, const attn_setting *setting)
{
    attn_jvp_walk *plan = (attn_jvp_walk *)walk;
    attn_tile_walk *tiles = &plan->gradient.tiles;
    const attn_resolved *p = &walk->problem;
    int64_t heads;
    attn_tiles_begin(tiles);
    attn_tangents_begin(&plan->tangents, walk);
    tiles->group = 1;
    if (!attn_mul(p->shape.batch, p->shape.heads_q, &heads) || !attn_mul(heads, walk->tiles, &walk->tasks)) return 0;
    walk->workers = attn_is_serial(p) ? 1 : (int)attn_clamp(walk->tasks, 1, setting->threads);
    return attn_tables_init(&tiles->tables, walk, walk->tile_q + walk->block_kv) && attn_tiles_measure(tiles) &&
           attn_gradient_lay_out(&plan->gradient, p->shape.dim_v, NULL, 0) && attn_tangents_lay_out(&plan->tangents, walk) &&
           attn_walk_add_bytes(walk, tiles->tables.bytes, 0);
}

typedef struct call {
    const attn_jvp_walk *plan;
    const attn_args *args;
    char *workers;
} call;

static void run_task(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_jvp_walk *plan = c->plan;
    const attn_walk *w = &plan->gradient.tiles.walk;
    const attn_resolved *p = &w->problem;
    attn_task task = attn_task_of_head(w, c->args, c->workers + worker * w->worker_bytes, number / w->tiles);
    attn_gradient_tile t;

    /* The last queries first, since under a causal mask they see the most keys. */
    if (!attn_gradient_tile_open_rows(&task, w->tiles - 1 - number % w->tiles, 0, &t)) return;
    attn_tangent_open(&plan->tangents, &task, &t);
    attn_tangent_walk(&plan->tangents, &task, &t);
    attn_tangent_store(&plan->tangents, &task, &t, &p->at.tan_o, c->args->tan_o, &p->at.tan_lse,
                       p->has.tan_lse ? c->args->tan_lse : NULL);
}

static void run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    const attn_jvp_walk *plan = (const attn_jvp_walk *)walk;
    const attn_tables *tables = &plan->gradient.tiles.tables;
    attn_args prepared = *args;
    attn_tables_begin(tables, walk, args, workspace, &prepared);
    call c = {plan, &prepared, workspace + tables->bytes};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, run_task, &c);
}

const attn_walk_type attn_walk_jvp = {
    .name = "jvp",
    .op = ATTN_JVP,
    .supported = ATTN_USES_TILE_MASKS | ATTN_USES_BIASES | ATTN_USES(MODIFIER),
    .size = sizeof(attn_jvp_walk),
    .init = init,
    .run = run,
};
