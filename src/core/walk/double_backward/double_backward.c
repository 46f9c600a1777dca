/* SPDX-License-Identifier: MIT
 *
 * double_backward.c - the walk of double backward.  Primes mark the incoming gradients of dQ, dK, dV and dBias:
 *
 *      for each task (chain.h), for each query tile:                       Q, dO, delta = dO.O - dlse
 *          forward mode along the primes                                   mu, O'        the first pass over the keys, or given
 *          second_dO = O',  second_dlse = mu,  kappa = dO.O'
 *          for each block of keys that it sees:                                          the second
 *              score, modify, tangents    S, S'                            as in forward mode
 *              second             P = exp(S - lse), dS = P (V dO^T - delta)
 *                                 R = (S' - mu) dS + P (V' dO^T - kappa)
 *              through softcap    X = R f' + dS f'' x',  Y = dS f'
 *              accumulate         second_K += X^T Q + Y^T Q',  second_Q += X K + Y K',  second_V += (P (S' - mu))^T dO
 *
 * kappa = dO.O' is what ref/double_backward.c calls cov + eta: sum_j P (S' g + h) is dO times the sum that O' is made of.
 */
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "../../gradient/bias_gradient.h"
#include "../../gradient/chain.h"
#include "../../gradient/outer.h"
#include "../../gradient/tangent.h"
#include "../../tile/runs.h"
#include "../walks.h"

typedef struct attn_double_backward_walk {
    attn_sum_walk sums;
    attn_tangents tangents;
    /* Offsets in a worker's memory, as in attn_tile_scratch. */
    int64_t kappa;             /* of the current tile: dO.O' */
    int64_t Q_panels;          /* rows of the tangents of its queries in column panels */
    int64_t curvature, before; /* of the current block: second derivatives of the softcap, and tangents before it */
    int64_t rows, rows_bytes;  /* in shared memory: [batch * heads_q][tiles], mu and kappa, if the bias needs them again */
} attn_double_backward_walk;

static const attn_double_backward_walk *plan_of(const attn_task *task) { return (const attn_double_backward_walk *)task->walk; }

/* mu and kappa of a tile, one after the other. */
static char *rows_at(const attn_task *task, char *shared, int64_t number)
{
    const attn_walk *w = task->walk;
    int64_t head = task->b * w->problem.shape.heads_q + task->h;
    return shared + plan_of(task)->rows + (head * w->tiles + number) * plan_of(task)->rows_bytes;
}

static void keep_rows(const attn_task *task, int64_t number, char *shared)
{
    const attn_double_backward_walk *plan = plan_of(task);
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    char *rows = rows_at(task, shared, number);
    memcpy(rows, attn_part(task, plan->tangents.mu), (size_t)at->lane_bytes);
    memcpy(rows + at->lane_bytes, attn_part(task, plan->kappa), (size_t)at->lane_bytes);
}

/* Opens a tile as in backward, and the tangents of its queries, transposed and in panels. */
static int open_tile(const attn_task *task, int64_t number, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_layout *q = &p->at.tan_q;
    void *panels = attn_part(task, plan_of(task)->Q_panels);
    if (!attn_gradient_tile_open(task, number, 0, t)) return 0;
    attn_tangent_open(&plan_of(task)->tangents, task, t);
    if (!p->has.tan_q) return 1;
    t->nan_safe_queries |=
        !w->kernel.outer->pack_rows(t->tile.rows, p->shape.dim_qk, attn_query_row(task, task->args->tan_q, q, t->tile.first),
                                    q->dtype, q->stride[2], attn_task_scale(task), panels);
    return 1;
}

/* Opens a tile whose mu and kappa are known already, from shared memory. */
static int reopen_tile(const attn_task *task, int64_t number, attn_gradient_tile *t, const char *shared)
{
    const attn_double_backward_walk *plan = plan_of(task);
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    const char *rows = rows_at(task, (char *)(uintptr_t)shared, number);
    if (!open_tile(task, number, t)) return 0;
    memcpy(attn_part(task, plan->tangents.mu), rows, (size_t)at->lane_bytes);
    memcpy(attn_part(task, plan->kappa), rows + at->lane_bytes, (size_t)at->lane_bytes);
    return 1;
}

/* The block's T = W (S' - mu) in S, dS in dP, R in the tangents of the scores; the softcap's derivatives in slope and curvature,
 * and the tangents of the scores before it in `before`. */
static void derive(const attn_task *task, attn_gradient_tile *t, const attn_keys *keys, const attn_keys *tangents)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_double_backward_walk *plan = plan_of(task);
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const int64_t n = keys->high - keys->low, Dv = p->shape.dim_v;
    const int width = t->tile.width, capped = p->score.softcap > 0;
    void *S = attn_part(task, at->S), *Sd = attn_part(task, plan->tangents.S), *dP = attn_part(task, plan->sums.dP);
    void *h = tangents->V ? attn_part(task, plan->tangents.other) : NULL, *stale = attn_part(task, at->block_max);
    const void *dOt = attn_part(task, plan->sums.dOt);
    double keep = p->dropout.probability < 1 ? 1 / (1 - p->dropout.probability) : 0;
    attn_drop storage;

    t->dropped = attn_task_score(task, &t->tile, attn_part(task, at->Qt), keys,
                                 capped ? attn_part(task, plan->sums.gradient.scratch.slope) : NULL,
                                 capped ? attn_part(task, plan->curvature) : NULL);
    if (t->empty) w->kernel.modify->unmask_empty(width, n, S, t->empty);
    attn_tangent_scores(&plan_of(task)->tangents, task, t, keys, tangents, capped ? attn_part(task, plan->before) : NULL);
    w->kernel.product->score(width, n, Dv, dOt, keys->V, keys->ldv, dP, stale, keys->K, keys->ldk);
    if (h) w->kernel.product->score(width, n, Dv, dOt, tangents->V, tangents->ldv, h, stale, keys->K, keys->ldk);
    w->kernel.double_backward->score_gradients(
        width, n, S, dP, Sd, h, attn_part(task, plan->sums.gradient.scratch.lse),
        attn_part(task, plan->sums.gradient.scratch.delta), attn_part(task, plan->tangents.mu), attn_part(task, plan->kappa),
        attn_task_drop(task, &t->tile, keys->low, &storage), keep, attn_part(task, at->modifiers));
    if (!t->empty) return;
    w->kernel.modify->unmask_empty(width, n, dP, t->empty); /* their weights are constant */
    w->kernel.modify->unmask_empty(width, n, Sd, t->empty);
}

/* Adds T, dS and R of one block to every derivative. */
static void accumulate(const attn_task *task, const attn_gradient_tile *t, const attn_keys *keys, const attn_keys *tangents,
                       const attn_split_sums *to)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_double_backward_walk *plan = plan_of(task);
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_kernel *k = &w->kernel;
    const int64_t n = keys->high - keys->low, D = p->shape.dim_qk;
    const int64_t size = (int64_t)attn_dtype_bytes(w->compute);
    void *T = attn_part(task, at->S), *Y = attn_part(task, plan->sums.dP), *X = attn_part(task, plan->tangents.S);
    void *second_Qt = attn_part(task, plan->sums.dQt);
    char *second_K = (char *)to->dK + keys->low * plan->sums.ld_dK * size,
         *second_V = (char *)to->dV + keys->low * plan->sums.ld_dV * size;
    attn_outer outer = {.walk = w, .first = t->tile.first, .rows = t->tile.rows, .nan_safe = t->nan_safe_queries};
    attn_prefetch none = {0};

    if (p->has.second_bias && !attn_bias_is_broadcast(p)) attn_store_bias_gradient(task, &t->tile, keys->low, n, X);
    if (p->score.softcap > 0)
        w->kernel.double_backward->through_softcap(t->tile.width, n, X, Y, attn_part(task, plan->sums.gradient.scratch.slope),
                                                   attn_part(task, plan->curvature), attn_part(task, plan->before));

    while (attn_outer_next(&outer)) {
        attn_outer_add(&outer, n, p->shape.dim_v, T, attn_part(task, plan->sums.dO_panels), second_V, plan->sums.ld_dV, &none);
        attn_outer_add(&outer, n, D, X, attn_part(task, plan->sums.Q_panels), second_K, plan->sums.ld_dK, &none);
        if (p->has.tan_q) attn_outer_add(&outer, n, D, Y, attn_part(task, plan->Q_panels), second_K, plan->sums.ld_dK, &none);
    }

    int nan_safe = t->dropped && k->outer->rows_not_finite(n, D, keys->K, keys->ldk);
    (nan_safe ? k->product->add_values_nan_safe : k->product->add_values)(t->tile.width, n, D, X, keys->K, keys->ldk, second_Qt);
    if (!p->has.tan_k) return;
    nan_safe = t->dropped && k->outer->rows_not_finite(n, D, tangents->K, tangents->ldk);
    (nan_safe ? k->product->add_values_nan_safe : k->product->add_values)(t->tile.width, n, D, Y, tangents->K, tangents->ldk,
                                                                          second_Qt);
}

/* The tangents of lse and of the rows of O, which the caller has. */
static void load_tangents(const attn_task *task, const attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_tangents *tangents = &plan_of(task)->tangents;
    const attn_layout *o = &p->at.tan_o, *lse = &p->at.tan_lse;
    const size_t size = attn_dtype_bytes(w->compute);
    char *mu = attn_part(task, tangents->mu);
    w->kernel.storage->pack_query(t->tile.width, t->tile.rows, p->shape.dim_v,
                                  attn_query_row(task, task->args->tan_o, o, t->tile.first), o->dtype, o->stride[2], 1,
                                  attn_part(task, tangents->O));
    memset(mu, 0, (size_t)w->tile_q * size);
    for (int64_t i = 0; i < t->tile.rows; i++)
        memcpy(mu + (size_t)i * size, attn_query_row(task, task->args->tan_lse, lse, t->tile.first + i), size);
}

/* Everything before the second pass. */
static void open_group(const attn_task *task, int64_t number, int64_t count, int owns_head, attn_gradient_group *group,
                       const attn_split_sums *to)
{
    (void)count, (void)owns_head; /* always 1: groups are single tiles */
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_double_backward_walk *plan = plan_of(task);
    attn_gradient_tile *t = &group->tiles[0];
    group->count = 0;
    if (p->has.second_bias && !attn_bias_is_broadcast(p)) attn_clear_bias_gradient(task, number);
    if (!open_tile(task, number, t)) return;
    group->count = 1;
    if (p->has.tan_o) load_tangents(task, t);
    else {
        attn_tangent_walk(&plan->tangents, task, t);
        attn_tangent_store(&plan->tangents, task, t, &p->at.second_grad_o, task->args->second_grad_o, &p->at.second_grad_lse,
                           p->has.second_grad_lse ? task->args->second_grad_lse : NULL);
    }
    w->kernel.double_backward->dot(t->tile.width, p->shape.dim_v, attn_part(task, plan->sums.dOt),
                                   attn_part(task, plan->tangents.O), attn_part(task, plan->kappa));
    if (p->has.second_bias) keep_rows(task, number, to->shared);
    memset(attn_part(task, plan->sums.dQt), 0, (size_t)(p->shape.dim_qk * w->tile_q) * attn_dtype_bytes(w->compute));
}

static void walk_keys(const attn_task *task, attn_gradient_group *group, attn_interval within, const attn_split_sums *to)
{
    attn_gradient_tile *t = &group->tiles[0];
    if (group->count == 0) return;
    const int64_t low = attn_max(within.low, t->keys.low), high = attn_min(within.high, t->keys.high);
    for (attn_interval run = {low, low}; attn_task_next(task, &t->tile, t->empty != NULL, high, &run);) {
        attn_keys keys = attn_task_keys(task, run.low, run.high);
        attn_keys tangents = attn_tangents_of_keys(&plan_of(task)->tangents, task, run.low, run.high);
        derive(task, t, &keys, &tangents);
        accumulate(task, t, &keys, &tangents, to);
    }
}

static void finish_group(const attn_task *task, attn_gradient_group *group, const attn_split_sums *to)
{
    (void)to;
    const attn_walk *w = task->walk;
    const attn_layout *q = &w->problem.at.second_q;
    const attn_gradient_tile *t = &group->tiles[0];
    if (group->count == 0) return;
    w->kernel.storage->store_columns(t->tile.width, t->tile.rows, w->problem.shape.dim_qk, attn_task_scale(task),
                                     attn_part(task, plan_of(task)->sums.dQt),
                                     attn_query_row(task, task->args->second_q, q, t->tile.first), q->dtype, q->stride[2]);
}

/* ---- the bias, if its derivative has a walk of its own ---- */

static const void *derive_block(const attn_task *task, attn_gradient_tile *tile, int64_t low, int64_t high)
{
    const attn_keys keys = attn_task_keys(task, low, high);
    const attn_keys tangents = attn_tangents_of_keys(&plan_of(task)->tangents, task, low, high);
    derive(task, tile, &keys, &tangents);
    return attn_part(task, plan_of(task)->tangents.S);
}

/* ---- the plan ---- */

static int init(attn_walk *walk, const attn_setting *setting)
{
    attn_double_backward_walk *plan = (attn_double_backward_walk *)walk;
    attn_tile_walk *tiles = &plan->sums.gradient.tiles;
    const attn_resolved *p = &walk->problem;
    const int64_t q = walk->kernel.lanes * walk->kernel.vectors, panels = attn_ceil_div(p->shape.dim_qk, q) * q;
    const size_t size = attn_dtype_bytes(walk->compute);
    int64_t rows = 0;
    attn_tiles_begin(tiles);
    attn_tangents_begin(&plan->tangents, walk);
    if (!attn_sums_deal(&plan->sums, setting, &p->at.second_k, &p->at.second_v, 1)) return 0;
    if (!attn_tables_init(&tiles->tables, walk, walk->tile_q + walk->block_kv)) return 0;
    if (p->has.second_bias && (!attn_mul(p->shape.batch, p->shape.heads_q, &rows) || !attn_mul(rows, walk->tiles, &rows))) return 0;
    plan->rows_bytes = 2 * attn_step_bytes(1, q, size);
    const int64_t capped = p->score.softcap > 0 ? walk->block_kv : 0;
    const attn_part_of own[] = {
        {&plan->kappa, 1, q, size},
        {&plan->Q_panels, panels, q, size},
        {&plan->curvature, capped, q, size},
        {&plan->before, capped, q, size},
    };
    const attn_part_of shared[] = {{&plan->rows, rows, plan->rows_bytes, 1}};
    return attn_sums_lay_out(&plan->sums, own, sizeof own / sizeof *own, shared, 1) &&
           attn_tangents_lay_out(&plan->tangents, walk) && attn_walk_add_bytes(walk, tiles->tables.bytes, 0);
}

static void run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    const attn_resolved *p = &walk->problem;
    const attn_tables *tables = &attn_tiles_of(walk)->tables;
    const attn_split_sums_target target = {&p->at.second_k, &p->at.second_v, args->second_k, args->second_v};
    const attn_chain_steps steps = {open_group, walk_keys, finish_group};
    const attn_bias_steps of_bias = {reopen_tile, derive_block};
    attn_args prepared = *args;
    attn_tables_begin(tables, walk, args, workspace, &prepared);
    workspace += tables->bytes;
    attn_chain_run(walk, &prepared, workspace, &steps, &target);
    if (p->has.second_bias && attn_bias_is_broadcast(p)) attn_sum_bias_gradient(walk, &prepared, workspace, &of_bias);
}

const attn_walk_type attn_walk_double_backward = {
    .name = "double backward",
    .op = ATTN_DOUBLE_BACKWARD,
    .supported = ATTN_USES_TILE_MASKS | ATTN_USES_BIASES | ATTN_USES(LSE_GRADIENT) | ATTN_USES(BIAS_GRADIENT),
    .size = sizeof(attn_double_backward_walk),
    .init = init,
    .run = run,
};
