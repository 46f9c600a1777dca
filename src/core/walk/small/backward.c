/* SPDX-License-Identifier: MIT
 * backward.c - short heads backward: rows of queries, keys in the lanes, a tile of keys at a time. */
#include <string.h>

#include "../../base/names.h"
#include "../../task/task.h"
#include "../../threads/threads.h"
#include "small.h"

typedef struct attn_small_backward {
    attn_walk walk;
    int64_t ld_scores;   /* row length of dS */
    int prefetches_next; /* prefetches the data of a worker's next head */
    int64_t Kt, Vt, P;   /* offsets in a worker's memory: of a tile of keys */
    int64_t dS;          /* of all keys */
    int64_t lse, delta;
} attn_small_backward;

static int init(attn_walk *walk, const attn_setting *setting)
{
    attn_small_backward *plan = (attn_small_backward *)walk;
    const attn_shape *shape = &walk->problem.shape;
    const size_t size = attn_dtype_bytes(walk->compute);
    const int64_t lanes = walk->kernel.lanes, rows = attn_ceil_div(attn_small_queries(walk), lanes) * lanes;
    plan->prefetches_next = !attn_is_serial(&walk->problem);
    plan->ld_scores = attn_small_row(walk);
    walk->tile_q = lanes * walk->kernel.vectors;
    walk->block_kv = attn_small_keys(walk);
    walk->tiles = attn_ceil_div(shape->len_q, walk->tile_q);
    walk->tiling = ATTN_TILING_GRID;
    if (!attn_mul(shape->batch, shape->heads_q, &walk->tasks)) return 0;
    const attn_part_of parts[] = {
        {&plan->Kt, shape->dim_qk, walk->tile_q, size},
        {&plan->Vt, shape->dim_v, walk->tile_q, size},
        {&plan->P, rows, walk->tile_q, size},
        {&plan->dS, rows, plan->ld_scores, size},
        {&plan->lse, rows, 1, size},
        {&plan->delta, rows, 1, size},
    };
    return attn_place(parts, sizeof parts / sizeof *parts, &walk->worker_bytes) && attn_small_finish(walk, setting->threads);
}

typedef struct call {
    const attn_small_backward *plan;
    const attn_args *args;
    char *workspace;
} call;

/* A head, as backward needs it. */
typedef struct gradient_head {
    const attn_small_backward *plan;
    const attn_task *task;
    const void *Q, *dO;
    void *Kt, *Vt, *P, *dS; /* dS of all keys, the others of the current tile */
    void *lse, *delta;
    const void *scale, *one;
    int64_t seen;
} gradient_head;

/* P and dS of a tile of keys, and their dV and dK. */
static void run_keys(const gradient_head *h, const attn_key_tile *tile, attn_prefetch *prefetch)
{
    const attn_task *task = h->task;
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_shape *shape = &p->shape;
    const attn_small_part *k = w->kernel.small;
    const int64_t seen = h->seen - tile->first, len_q = task->visibility.len_q;
    void *dS = attn_small_element(w, h->dS, tile->first);
    w->kernel.storage->pack_query(tile->width, tile->rows, shape->dim_qk, attn_key_row(task, task->args->k, &p->at.k, tile->first),
                                  p->at.k.dtype, p->at.k.stride[2], attn_task_scale(task), h->Kt);
    w->kernel.storage->pack_query(tile->width, tile->rows, shape->dim_v, attn_key_row(task, task->args->v, &p->at.v, tile->first),
                                  p->at.v.dtype, p->at.v.stride[2], 1, h->Vt);
    k->score(tile->width, len_q, shape->dim_qk, h->Q, p->at.q.stride[2], h->Kt, seen, h->P, w->tile_q, prefetch);
    k->score(tile->width, len_q, shape->dim_v, h->dO, p->at.grad_o.stride[2], h->Vt, seen, dS, h->plan->ld_scores, prefetch);
    w->kernel.small_gradient->gradient(tile->width, len_q, seen, h->P, w->tile_q, dS, h->plan->ld_scores, h->lse, h->delta);

    attn_short_product dV = {.rows = tile->rows,
                             .steps = len_q,
                             .dim = shape->dim_v,
                             .A = h->P,
                             .row = 1,
                             .step = w->tile_q,
                             .B = h->dO,
                             .ldb = p->at.grad_o.stride[2],
                             .from = 1 - seen, /* the first query that sees key m */
                             .to = len_q,
                             .factors = h->one,
                             .C = attn_key_row(task, task->args->grad_v, &p->at.grad_v, tile->first),
                             .ldc = p->at.grad_v.stride[2]};
    (void)attn_small_multiply(w, &dV, prefetch);
    attn_short_product dK = dV;
    dK.dim = shape->dim_qk;
    dK.A = dS;
    dK.step = h->plan->ld_scores;
    dK.B = h->Q;
    dK.ldb = p->at.q.stride[2];
    dK.factors = h->scale;
    dK.C = attn_key_row(task, task->args->grad_k, &p->at.grad_k, tile->first);
    dK.ldc = p->at.grad_k.stride[2];
    (void)attn_small_multiply(w, &dK, prefetch);
}

static void run_task(void *context, int64_t worker, int64_t head)
{
    const call *c = context;
    const attn_small_backward *plan = c->plan;
    const attn_walk *w = &plan->walk;
    const attn_resolved *p = &w->problem;
    const attn_args *a = c->args;
    const attn_shape *shape = &p->shape;
    const attn_task task = attn_task_of_head(w, a, c->workspace + worker * w->worker_bytes, head);
    const int64_t len_q = task.visibility.len_q, len_kv = task.visibility.len_kv;
    double scale, one; /* of the compute type */
    if (task.visibility.of_other_walk) return;
    const gradient_head h = {plan,
                             &task,
                             attn_query_row(&task, a->q, &p->at.q, 0),
                             attn_query_row(&task, a->grad_o, &p->at.grad_o, 0),
                             attn_part(&task, plan->Kt),
                             attn_part(&task, plan->Vt),
                             attn_part(&task, plan->P),
                             attn_part(&task, plan->dS),
                             attn_part(&task, plan->lse),
                             attn_part(&task, plan->delta),
                             &scale,
                             &one,
                             attn_seen_by_first(&task)};
    attn_real_put(&scale, w->compute, 0, attn_task_scale(&task));
    attn_real_put(&one, w->compute, 0, 1);
    attn_prefetch prefetch = plan->prefetches_next ? attn_small_prefetch(&task, head + w->workers) : (attn_prefetch){0};
    const attn_layout *lse = &p->at.lse;
    w->kernel.small_gradient->delta(len_q, shape->dim_v, h.dO, p->at.grad_o.stride[2], attn_query_row(&task, a->o, &p->at.o, 0),
                                    p->at.o.stride[2], attn_query_row(&task, a->lse, lse, 0), lse->stride[2],
                                    p->has.grad_lse ? attn_query_row(&task, a->grad_lse, &p->at.grad_lse, 0) : NULL,
                                    p->at.grad_lse.stride[2], h.delta, h.lse);
    for (int64_t t = 0; t < attn_key_tiles(w, len_kv); t++) {
        const attn_key_tile tile = attn_key_tile_at(w, len_kv, t);
        run_keys(&h, &tile, &prefetch);
    }
    const attn_short_product dQ = {.rows = len_q,
                                   .steps = len_kv,
                                   .dim = shape->dim_qk,
                                   .A = h.dS,
                                   .row = plan->ld_scores,
                                   .step = 1,
                                   .B = attn_key_row(&task, a->k, &p->at.k, 0),
                                   .ldb = p->at.k.stride[2],
                                   .from = -len_q,
                                   .to = h.seen,
                                   .factors = &scale,
                                   .C = attn_query_row(&task, a->grad_q, &p->at.grad_q, 0),
                                   .ldc = p->at.grad_q.stride[2]};
    (void)attn_small_multiply(w, &dQ, &prefetch);
}

static void run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    call c = {(const attn_small_backward *)walk, args, workspace};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, run_task, &c);
}

const attn_walk_type attn_walk_small_backward = {
    .name = "small backward",
    .op = ATTN_BACKWARD,
    .supported = ATTN_USES(CAUSAL) | ATTN_USES(ALIGNED) | ATTN_USES(ORIGIN) | ATTN_USES(LENGTHS) | ATTN_USES(PACKED) |
                 ATTN_USES(SCALES) | ATTN_USES(LSE_GRADIENT) | ATTN_USES(INVARIANT),
    .why = "a whole head at once, since it is short",
    .limits = attn_small_limits,
    .size = sizeof(attn_small_backward),
    .init = init,
    .run = run,
};
