/* SPDX-License-Identifier: MIT
 *
 * backward.c - the walk of backward (Dao et al. 2022, algorithm 4, with queries outermost):
 *
 *      for each task (a share of the queries of one key head, of all the query heads of its group):
 *          for each query tile:                                            Q, dO, delta = dO.O - dlse
 *              for each block of keys that it sees:
 *                  score, modify      S                                    as in forward
 *                  gradient           P = exp(S - lse), dS = P (V dO^T - delta)
 *                  accumulate         dV += P^T dO,  dK += dS^T Q,  dQ += dS K
 *              store dQ
 *      add the shares of each key head in order, store dK and dV
 *
 * Everything is recomputed from lse: nothing of size len_q * len_kv exists.  shares.h tells how tasks share a key head.
 */
#include <math.h>
#include <string.h>

#include "../base/names.h"
#include "gradient.h"
#include "shares.h"

/* dS and W = P after dropout of one block, into every gradient. */
static void accumulate(const attn_task *task, const attn_gradient_tile *t, const attn_keys *keys, const attn_shares *to)
{
    const attn_walk *w = task->walk;
    const attn_problem *p = &w->problem;
    const attn_bwd_kernel *k = w->backward;
    const int64_t n = keys->high - keys->low, rows = t->tile.rows, size = (int64_t)attn_dtype_bytes(w->compute);
    void *W = attn_part(task, w->scratch.S), *dS = attn_part(task, w->scratch.dP), *dQt = attn_part(task, w->scratch.dQt);
    char *dK = (char *)to->dK + keys->low * w->ld_dK * size, *dV = (char *)to->dV + keys->low * w->ld_dV * size;

    if (p->gradients.slopes) {
        double first = (double)t->tile.first + (double)task->sight.offset - (double)keys->low;
        to->sums->slope -= k->sum_distances(rows, n, dS, first);
    }
    if (p->gradients.bias && !attn_bias_is_broadcast(p)) attn_store_bias_gradient(task, &t->tile, keys->low, n, dS);
    if (p->score.softcap > 0) k->multiply(t->tile.width, n, dS, attn_part(task, w->scratch.slope));

    (t->careful_queries ? k->add_outer_careful : k->add_outer)(n, rows, p->shape.dim_v, W, attn_part(task, w->scratch.dO_panels),
                                                               dV, w->ld_dV);
    (t->careful_queries ? k->add_outer_careful : k->add_outer)(n, rows, p->shape.dim_qk, dS, attn_part(task, w->scratch.Q_panels),
                                                               dK, w->ld_dK);
    int careful = t->dropped && k->rows_not_finite(n, p->shape.dim_qk, keys->K, keys->ldk);
    (careful ? k->add_values_careful : k->add_values)(t->tile.width, n, p->shape.dim_qk, dS, keys->K, keys->ldk, dQt);
}

/* sum_i exp(sink - lse_i) (dlse_i - dO_i.O_i). */
static double sink_gradient(const attn_task *task, const attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const double sink = attn_task_sink(task);
    double sum = 0;
    for (int64_t i = 0; i < attn_min(t->tile.rows, task->sight.len_q - t->tile.first); i++) {
        double lse = attn_real_at(attn_part(task, w->scratch.m), w->compute, i);
        sum -= exp(sink - lse) * attn_real_at(attn_part(task, w->scratch.l), w->compute, i);
    }
    return sum;
}

/* sum_i q_i.dQ_i before the scale: the gradient of the scale. */
static double scale_gradient(const attn_task *task, const attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_problem *p = &w->problem;
    void *unscaled = attn_part(task, w->scratch.Ot);
    w->kernel->pack_query(t->tile.width, t->tile.rows, p->shape.dim_qk, attn_query_row(task, task->args->q, &p->q, t->tile.first),
                          p->q.dtype, p->q.stride[2], 1, unscaled);
    return w->backward->inner(t->tile.rows, p->shape.dim_qk, unscaled, attn_part(task, w->scratch.dQt)) / p->score.temperature;
}

static void run_tile(const attn_task *task, int64_t number, const attn_shares *to, char *shared)
{
    (void)shared;
    const attn_walk *w = task->walk;
    const attn_problem *p = &w->problem;
    void *dQt = attn_part(task, w->scratch.dQt);
    attn_gradient_tile t;

    if (p->gradients.bias && !attn_bias_is_broadcast(p)) attn_clear_bias_gradient(task, number);
    if (!attn_gradient_tile_open(task, number, &t)) return;
    memset(dQt, 0, (size_t)(p->shape.dim_qk * w->tile_q) * attn_dtype_bytes(w->compute));

    for (attn_interval run = {t.keys.low, t.keys.low}; attn_gradient_next(task, &t, &run);) {
        attn_keys keys = attn_task_keys(task, run.low, run.high);
        attn_gradient_block(task, &t, &keys);
        accumulate(task, &t, &keys, to);
    }
    w->kernel->store_columns(t.tile.width, t.tile.rows, p->shape.dim_qk, attn_task_scale(task), dQt,
                             attn_query_row(task, task->args->grad_q, &p->gradients.grad_q, t.tile.first),
                             p->gradients.grad_q.dtype, p->gradients.grad_q.stride[2]);
    if (p->gradients.scale) to->sums->scale += scale_gradient(task, &t);
    if (p->gradients.sink) to->sums->sink += sink_gradient(task, &t);
}

static void put_real(void *array, attn_dtype dtype, int64_t i, double x)
{
    if (dtype == ATTN_F32) ((float *)array)[i] = (float)x;
    else ((double *)array)[i] = x;
}

/* The gradients that are a number for each head, summed over splits and batch in order. */
static void store_head_sums(const attn_walk *w, const attn_args *args, char *shared)
{
    const attn_problem *p = &w->problem;
    const int64_t B = p->shape.batch, Hq = p->shape.heads_q;
    for (int64_t h = 0; h < Hq; h++) {
        attn_head_sums all = {0, 0, 0};
        for (int64_t b = 0; b < B; b++) {
            double slope = 0;
            for (int64_t s = 0; s < w->splits; s++) {
                const attn_head_sums *one = attn_head_sums_at(w, shared, b * Hq + h, s);
                all.scale += one->scale;
                all.sink += one->sink;
                slope += one->slope;
            }
            all.slope += slope;
            if (p->gradients.slopes && p->bias.alibi == ATTN_ALIBI_BATCH_HEAD)
                put_real(args->grad_slopes, w->compute, b * Hq + h, slope);
        }
        if (p->gradients.slopes && p->bias.alibi == ATTN_ALIBI_HEAD) put_real(args->grad_slopes, w->compute, h, all.slope);
        if (p->gradients.sink) put_real(args->grad_sink, w->compute, h, all.sink);
        if (p->gradients.scale) put_real(args->grad_scale, w->compute, h, all.scale);
    }
}

void attn_sched_backward(const attn_walk *walk, const attn_args *args, void *workspace)
{
    const attn_gradients *g = &walk->problem.gradients;
    const attn_shares_target target = {&g->grad_k, &g->grad_v, args->grad_k, args->grad_v};
    attn_shares_run(walk, args, workspace, run_tile, &target);
    store_head_sums(walk, args, attn_shared_of(walk, workspace));
    if (g->bias && attn_bias_is_broadcast(&walk->problem)) attn_sched_bias_gradient(walk, args, workspace);
}
