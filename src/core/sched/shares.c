/* SPDX-License-Identifier: MIT
 * shares.c - tasks that each have a share of a key head's queries, and the sum of their shares. */
#include "shares.h"

#include <string.h>

#include "../base/names.h"
#include "threads.h"

typedef struct call {
    const attn_walk *walk;
    const attn_args *args;
    char *workers, *shared;
    attn_run_tile *run_tile;
    const attn_shares_target *target;
} call;

attn_head_sums *attn_head_sums_at(const attn_walk *walk, char *shared, int64_t head, int64_t split)
{
    return (attn_head_sums *)(void *)(shared + walk->shared.sums) + head * walk->splits + split;
}

static void store_keys(const call *c, const attn_task *task, const void *dK, const void *dV)
{
    const attn_walk *w = task->walk;
    const attn_problem *p = &w->problem;
    const attn_layout *k = c->target->k_layout, *v = c->target->v_layout;
    int64_t rows = p->mask.packed ? task->sight.len_kv : p->shape.len_kv;
    w->backward->store_rows(rows, p->shape.dim_qk, 1, dK, w->ld_dK, attn_key_row(task, c->target->k, k, 0), k->dtype, k->stride[2]);
    w->backward->store_rows(rows, p->shape.dim_v, 1, dV, w->ld_dV, attn_key_row(task, c->target->v, v, 0), v->dtype, v->stride[2]);
}

/* Number of a task: key head (batch entry and key head together) and split. */
static void run_task(void *context, int64_t worker, int64_t number)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_shape *shape = &w->problem.shape;
    const int64_t key_head = number / w->splits, split = number % w->splits, heads = shape->heads_q / shape->heads_kv;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute);
    char *memory = c->workers + worker * w->scratch.bytes;
    attn_task task = {0};
    attn_shares to = {memory + w->scratch.dK, memory + w->scratch.dV, NULL};

    if (w->splits > 1) {
        to.dK = c->shared + w->shared.dK + number * w->shared.dK_bytes;
        to.dV = c->shared + w->shared.dV + number * w->shared.dV_bytes;
    }
    memset(to.dK, 0, (size_t)(shape->len_kv * w->ld_dK * size));
    memset(to.dV, 0, (size_t)(shape->len_kv * w->ld_dV * size));

    int64_t place = 0; /* tiles are dealt round, since under a causal mask the later ones cost more */
    for (int64_t h = 0; h < heads; h++) {
        int64_t head = key_head * heads + h;
        attn_head_sums none = {0, 0, 0};
        task = attn_task_of_head(w, c->args, memory, head);
        to.sums = attn_head_sums_at(w, c->shared, head, split);
        *to.sums = none;
        for (int64_t t = 0; t < w->tiles; t++, place++)
            if (place % w->splits == split) c->run_tile(&task, t, &to, c->shared);
    }
    if (w->splits == 1) store_keys(c, &task, to.dK, to.dV);
}

/* Adds the splits of a key head, in order, and stores the sum. */
static void run_sum(void *context, int64_t worker, int64_t key_head)
{
    const call *c = context;
    const attn_walk *w = c->walk;
    const attn_shape *shape = &w->problem.shape;
    attn_task task =
        attn_task_of_head(w, c->args, c->workers + worker * w->scratch.bytes, key_head * (shape->heads_q / shape->heads_kv));
    char *dK = c->shared + w->shared.dK + key_head * w->splits * w->shared.dK_bytes;
    char *dV = c->shared + w->shared.dV + key_head * w->splits * w->shared.dV_bytes;
    for (int64_t s = 1; s < w->splits; s++) {
        w->backward->add(shape->len_kv * w->ld_dK, dK + s * w->shared.dK_bytes, dK);
        w->backward->add(shape->len_kv * w->ld_dV, dV + s * w->shared.dV_bytes, dV);
    }
    store_keys(c, &task, dK, dV);
}

void attn_shares_run(const attn_walk *walk, const attn_args *args, void *workspace, attn_run_tile *run_tile,
                     const attn_shares_target *target)
{
    const attn_shape *shape = &walk->problem.shape;
    call c = {walk, args, workspace, attn_shared_of(walk, workspace), run_tile, target};
    attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, walk->tasks, run_task, &c);
    if (walk->splits > 1)
        attn_threads_run(walk->parallel_for, walk->parallel_context, walk->workers, shape->batch * shape->heads_kv, run_sum, &c);
}
