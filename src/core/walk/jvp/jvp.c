/* SPDX-License-Identifier: MIT
 *
 * jvp.c - the walk of forward mode.  Dots mark tangents:
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
#include "../../gradient/tangent.h"
#include "../../threads/threads.h"
#include "../family.h"

typedef struct call {
    const attn_walk *walk;
    const attn_args *args;
    char *workers;
} call;

static void run_task(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_resolved *p = &w->problem;
    attn_task task = attn_task_of_head(w, c->args, c->workers + worker * w->worker_bytes, number / w->tiles);
    attn_gradient_tile t;

    /* The last queries first, since under a causal mask they see the most keys. */
    if (!attn_gradient_tile_open(&task, w->tiles - 1 - number % w->tiles, 0, &t)) return;
    attn_tangent_open(&task, &t);
    attn_tangent_walk(&task, &t);
    attn_tangent_store(&task, &t, &p->at.tan_o, c->args->tan_o, &p->at.tan_lse, p->has.tan_lse ? c->args->tan_lse : NULL);
}

void attn_sched_jvp(const attn_walk *walk, const attn_args *args, void *workspace)
{
    call c = {walk, args, workspace};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, run_task, &c);
}

const attn_walk_type attn_walk_jvp = {
    .name = "jvp",
    .op = ATTN_JVP,
    .supported = ATTN_USES_TILE_MASKS | ATTN_USES_BIASES | ATTN_USES(MODIFIER),
    .size = sizeof(attn_tile_family),
    .init = attn_family_init,
    .run = attn_family_run,
};
