/* SPDX-License-Identifier: MIT
 *
 * backward.c - the walk of backward (Dao et al. 2022, algorithm 4, with queries outermost):
 *
 *      for each key head, for all the query heads of its group:
 *          for each group of a few query tiles: Q, dO, delta = dO.O - dlse
 *              for each block of keys, for each of the tiles that sees it:
 *                  score, modify      S                                    as in forward
 *                  gradient           P = exp(S - lse), dS = P (V dO^T - delta)
 *                  accumulate         dV += P^T dO,  dK += dS^T Q,  dQ += dS K
 *              store dQ
 *      store dK and dV
 *
 * Everything is recomputed from lse: nothing of size len_q * len_kv exists.  chain.h: how tasks share a key head.
 */
#include <math.h>
#include <string.h>

#include "../../base/checked.h"
#include "../../base/names.h"
#include "../../gradient/bias_gradient.h"
#include "../../gradient/chain.h"
#include "../../gradient/outer.h"
#include "../../gradient/relative_sums.h"
#include "../../gradient/table_sums.h"
#include "../../prepare/additive.h"
#include "../../prepare/prepare.h"
#include "../../prepare/relative_prepare.h"
#include "../../tile/runs.h"
#include "../walks.h"

/* From the gradient of what the modifier and the softcap return to that of their inputs. */
static void derive_scores(const attn_task *task, const attn_gradient_tile *t, const attn_keys *keys, int again)
{
    const attn_walk *w = task->walk;
    const int64_t n = keys->high - keys->low;
    void *dS = attn_part(task, attn_sums_of(w)->dP);
    if (w->problem.has.modifier) {
        attn_task_slopes(task, &t->tile, keys, dS, again);
        w->kernel.gradient->multiply(t->tile.width, n, dS, attn_part(task, attn_tiles_of(w)->scratch.modifiers));
    }
    if (w->problem.score.softcap > 0)
        w->kernel.gradient->multiply(t->tile.width, n, dS, attn_part(task, attn_gradient_of(w)->scratch.slope));
}

/* Where a tile adds to the gradients of w and its biases. */
static double *weights_of_tile(const attn_gradient_tile *t, const attn_walk *w, const attn_split_sums *to)
{
    return to->dw ? to->dw + t->tile.place * 2 * w->problem.shape.dim_qk : NULL;
}

/* Adds dS and W = P after dropout of one block to every gradient. */
static void accumulate(const attn_task *task, const attn_gradient_tile *t, const attn_keys *keys, const attn_split_sums *to,
                       attn_prefetch *prefetch)
{
    const attn_walk *w = task->walk;
    const attn_sum_walk *plan = attn_sums_of(w);
    const attn_resolved *p = &w->problem;
    const attn_kernel *k = &w->kernel;
    const int64_t n = keys->high - keys->low, rows = t->tile.rows, size = (int64_t)attn_dtype_bytes(w->compute);
    void *W = attn_part(task, attn_tiles_of(w)->scratch.S), *dS = attn_part(task, plan->dP);
    const attn_outer outer = {.walk = w, .first = t->tile.first, .rows = rows, .nan_safe = t->nan_safe_queries};
    char *dK = (char *)to->dK + keys->low * plan->ld_dK * size, *dV = (char *)to->dV + keys->low * plan->ld_dV * size;

    if (p->has.grad_alibi_slopes) {
        double first = (double)t->tile.first + (double)task->visibility.offset - (double)keys->low;
        to->sums[t->tile.place].slope -= k->gradient->sum_distances(rows, n, dS, first);
    }
    if (p->has.grad_bias_table) attn_table_sums_add(task, &t->tile, keys, dS);
    if (p->has.grad_bias && !attn_bias_is_broadcast(p)) attn_store_bias_gradient(task, &t->tile, keys->low, n, dS);
    derive_scores(task, t, keys, 0);

    attn_outer_add_all(outer, n, p->shape.dim_v, W, t->dO_panels, dV, plan->ld_dV, prefetch);
    if (attn_is_additive(p)) {
        k->additive_gradient->add(t->tile.width, rows, n, p->shape.dim_qk, t->Qt, keys->K, keys->ldk, attn_task_weights(task),
                                  attn_task_scale(task), dS, t->dQt, dK, plan->ld_dK, weights_of_tile(t, w, to));
        return;
    }
    attn_outer_add_all(outer, n, p->shape.dim_qk, dS, t->Q_panels, dK, plan->ld_dK, prefetch);
    k->product->add_values(t->tile.width, n, p->shape.dim_qk, dS, keys->K_wide, keys->ldk_wide, t->dQt);
    if (p->has.relative_keys)
        attn_relative_absorb(task, &t->tile, keys, ATTN_RELATIVE_KEYS, dS, 0, t->dQt + attn_tiles_of(w)->relative.Qrt);
    if (!attn_grads_relative(p)) return;
    if (p->has.relative_keys)
        attn_relative_sum(task, &t->tile, keys, ATTN_RELATIVE_KEYS, dS, t->nan_safe_queries, t->Q_panels + plan->relative.Q_panels,
                          to->relative);
    if (p->has.relative_values)
        attn_relative_sum(task, &t->tile, keys, ATTN_RELATIVE_VALUES, W, t->nan_safe_queries, t->dO_panels, to->relative);
}

/* Adds dS of one block to dQ only; a dropped key adds nothing even if it is NaN or infinite. */
static void accumulate_queries(const attn_task *task, const attn_gradient_tile *t, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    const attn_kernel *k = &w->kernel;
    const int64_t n = keys->high - keys->low;
    void *dS = attn_part(task, attn_sums_of(w)->dP);
    derive_scores(task, t, keys, 1);
    (t->dropped ? k->product->add_values_nan_safe : k->product->add_values)(t->tile.width, n, w->problem.shape.dim_qk, dS,
                                                                            keys->K_wide, keys->ldk_wide, t->dQt);
    if (w->problem.has.relative_keys)
        attn_relative_absorb(task, &t->tile, keys, ATTN_RELATIVE_KEYS, dS, 1, t->dQt + attn_tiles_of(w)->relative.Qrt);
}

/* Processes the keys that a tile sees of these, in parts that the same vectors see.  `to` NULL: recomputes dQ only. */
static void add_block(const attn_task *task, attn_gradient_tile *t, const attn_keys *block, const attn_split_sums *to,
                      attn_prefetch *prefetch)
{
    const int64_t high = attn_min(block->high, t->keys.high);
    attn_gradient_tile part;
    for (int64_t j = attn_max(block->low, t->keys.low), end; j < high; j = end) {
        end = attn_gradient_tile_part(task, t, j, high, &part);
        if (part.tile.rows == 0) continue;
        attn_keys keys = attn_keys_within(task, block, j, end);
        attn_gradient_block(task, &part, &keys);
        if (to) accumulate(task, &part, &keys, to, prefetch);
        else accumulate_queries(task, &part, &keys);
        t->dropped |= part.dropped;
    }
}

/* sum_i exp(sink - lse_i) (dlse_i - dO_i.O_i). */
static double sink_gradient(const attn_task *task, const attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const double sink = attn_task_sink(task);
    double sum = 0;
    for (int64_t i = 0; i < attn_min(t->tile.rows, task->visibility.len_q - t->tile.first); i++) {
        const double d = sink - attn_real_at(t->lse, w->compute, i), weight = d > 0 ? 1 : exp(d); /* NaN stays NaN */
        sum -= weight * attn_real_at(t->delta, w->compute, i);
    }
    return sum;
}

/* sum_i q_i.dQ_i before the scale: the gradient of the scale. */
static double scale_gradient(const attn_task *task, const attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    void *unscaled = attn_part(task, attn_gradient_of(w)->scratch.O);
    w->kernel.storage->pack_query(t->tile.width, t->tile.rows, p->shape.dim_qk,
                                  attn_query_row(task, task->args->q, &p->at.q, t->tile.first), p->at.q.dtype, p->at.q.stride[2], 1,
                                  unscaled);
    double sum = w->kernel.gradient->inner(t->tile.rows, p->shape.dim_qk, unscaled, t->dQt);
    if (attn_tiles_of(w)->relative.two) {
        w->kernel.storage->pack_query(t->tile.width, t->tile.rows, p->shape.dim_qk,
                                      attn_query_row(task, task->args->relative_v, &p->at.q, t->tile.first), p->at.q.dtype,
                                      p->at.q.stride[2], 1, unscaled);
        sum += w->kernel.gradient->inner(t->tile.rows, p->shape.dim_qk, unscaled, t->dQt + attn_tiles_of(w)->relative.Qrt);
    }
    return sum / p->score.temperature;
}

/* Clears only the vectors that a tile uses: few queries have few, and the cache lines of the others are left alone. */
static void clear_lanes(const attn_walk *w, int width, char *Qt)
{
    enum { STEP = 32 }; /* bytes; what the compiler writes without a call */
    const int64_t D = w->problem.shape.dim_qk, size = (int64_t)attn_dtype_bytes(w->compute);
    const int64_t row = w->tile_q * size, used = width * w->kernel.lanes * size;
    if (used >= row || used % STEP) {
        memset(Qt, 0, (size_t)(D * row));
        return;
    }
    for (int64_t c = 0; c < D; c++)
        for (int64_t at = 0; at < used; at += STEP) memset(Qt + c * row + at, 0, STEP);
}

static void clear_queries(const attn_walk *w, const attn_gradient_tile *t)
{
    clear_lanes(w, t->tile.width, t->dQt);
    if (attn_tiles_of(w)->relative.two) clear_lanes(w, t->tile.width, t->dQt + attn_tiles_of(w)->relative.Qrt);
}

/* Recomputes dQ of a tile whose dQ is not finite although keys were dropped: 0 * NaN must not leak. */
static void repeat_nan_safe(const attn_task *task, attn_gradient_tile *t)
{
    const attn_walk *w = task->walk;
    clear_queries(w, t);
    for (attn_interval run = {t->keys.low, t->keys.low}; attn_gradient_next(task, t, &run);) {
        attn_keys keys = attn_task_keys(task, run.low, run.high);
        add_block(task, t, &keys, NULL, NULL);
    }
}

/* The first key from j on that one of the tiles visits; `high` if there is none before it. */
static int64_t next_key(const attn_gradient_tile *tiles, int64_t count, int64_t j, int64_t high)
{
    for (int64_t k = 0; k < count; k++) {
        const attn_gradient_tile *t = &tiles[k];
        int64_t from = attn_max(j, t->keys.low);
        if (!t->empty) from = attn_beyond_gap(&t->tile.visible, from);
        if (from < t->keys.high) high = attn_min(high, from);
    }
    return high;
}

/* Runs all tiles against each block of these keys that one of them sees: if a block must be copied, it is copied once, and stays in
 * the cache. */
static void walk_keys(const attn_task *task, attn_gradient_group *group, attn_interval within, const attn_split_sums *to)
{
    attn_gradient_tile *tiles = group->tiles;
    const int64_t count = group->count;
    int64_t high = 0;
    for (int64_t k = 0; k < count; k++) high = attn_max(high, tiles[k].keys.high);
    high = attn_min(high, within.high);
    for (int64_t j = within.low, end; (j = next_key(tiles, count, j, high)) < high; j = end) {
        attn_keys block = {0};
        end = attn_block_end(task->walk, j, high);
        for (int64_t k = 0; k < count; k++)
            for (attn_interval run = {j, j}; attn_gradient_run(task, &tiles[k], end, &run);) {
                if (!block.high) block = attn_task_keys(task, j, end);
                attn_keys keys = attn_keys_within(task, &block, run.low, run.high);
                add_block(task, &tiles[k], &keys, to, &group->prefetch);
            }
    }
}

static void finish_tile(const attn_task *task, attn_gradient_tile *t, const attn_split_sums *to)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_layout *dq = &p->at.grad_q;
    if (attn_is_additive(p))
        w->kernel.additive_gradient->finish(t->tile.width, t->tile.rows, p->shape.dim_qk, attn_task_weights(task), t->dQt,
                                            to->dw ? weights_of_tile(t, w, to) + p->shape.dim_qk : NULL);
    /* The corners of a band belong to no pair, and their rows are multiplied by 0. */
    if (!attn_is_additive(p) && (t->dropped || p->has.relative_keys) &&
        (w->kernel.softmax->not_finite(t->tile.width, t->tile.rows, p->shape.dim_qk, t->dQt) ||
         w->kernel.softmax->not_finite(t->tile.width, t->tile.rows, p->shape.dim_qk, t->dQt + attn_tiles_of(w)->relative.Qrt)))
        repeat_nan_safe(task, t);
    if (attn_tiles_of(w)->relative.two)
        w->kernel.storage->store_columns(
            t->tile.width, t->tile.rows, p->shape.dim_qk, attn_task_scale(task), t->dQt + attn_tiles_of(w)->relative.Qrt,
            attn_query_row(task, task->args->grad_relative_v, dq, t->tile.first), dq->dtype, dq->stride[2]);
    w->kernel.storage->store_columns(t->tile.width, t->tile.rows, p->shape.dim_qk, attn_task_scale(task), t->dQt,
                                     attn_query_row(task, task->args->grad_q, &p->at.grad_q, t->tile.first), p->at.grad_q.dtype,
                                     p->at.grad_q.stride[2]);
    if (p->has.grad_scale && !attn_is_additive(p)) to->sums[t->tile.place].scale += scale_gradient(task, t);
    if (p->has.grad_sink) to->sums[t->tile.place].sink += sink_gradient(task, t);
}

static void add_rows(attn_prefetch *prefetch, const void *at, int64_t rows, int64_t dim, const attn_layout *layout)
{
    const int64_t size = (int64_t)attn_dtype_bytes(layout->dtype);
    /* The stride of a single row can be any number. */
    const int64_t step = (int64_t)((uint64_t)layout->stride[2] * (uint64_t)size);
    struct attn_prefetch_rows one = {(uintptr_t)at, rows, dim * size, step};
    if (rows > 0 && dim > 0) prefetch->list[prefetch->count++] = one;
}

/*
 * What comes after tile `number` of a head: storage of its dQ, and the rows of the next tile, which may belong to the head that
 * this worker takes next.  If all keys are one block, so that a head takes little time, also a share of the keys and values of the
 * next key head, and of the storage of dK and dV.
 */
static attn_prefetch prefetch_after(const attn_task *task, int64_t number)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_resolved *g = p;
    const attn_args *a = task->args;
    const attn_shape *shape = &p->shape;
    const attn_tile here = attn_tile_of(w, &task->visibility, number);
    const int64_t heads = shape->heads_q / shape->heads_kv, head = task->b * shape->heads_q + task->h;
    const int last_tile = number + 1 >= w->tiles, last_head = (head + 1) % heads == 0;
    const int64_t next_key_head = (head / heads + w->workers) * heads; /* its first head */
    const int64_t next = !last_tile ? head : last_head ? next_key_head : head + 1;
    attn_prefetch prefetch = {0};

    add_rows(&prefetch, attn_query_row(task, a->grad_q, &g->at.grad_q, here.first), here.rows, shape->dim_qk, &g->at.grad_q);
    if (next >= shape->batch * shape->heads_q) return prefetch;
    const attn_task following = attn_task_of_head(w, a, task->memory, next);
    const attn_tile next_tile = attn_tile_of(w, &following.visibility, last_tile ? 0 : number + 1);
    add_rows(&prefetch, attn_query_row(&following, a->q, &p->at.q, next_tile.first), next_tile.rows, shape->dim_qk, &p->at.q);
    add_rows(&prefetch, attn_query_row(&following, a->o, &p->at.o, next_tile.first), next_tile.rows, shape->dim_v, &p->at.o);
    add_rows(&prefetch, attn_query_row(&following, a->grad_o, &g->at.grad_o, next_tile.first), next_tile.rows, shape->dim_v,
             &g->at.grad_o);

    const int64_t first = number * shape->len_kv / w->tiles, rows = (number + 1) * shape->len_kv / w->tiles - first;
    if (shape->len_kv > w->block_kv || !last_head || next_key_head >= shape->batch * shape->heads_q) return prefetch;
    const attn_task keys = attn_task_of_head(w, a, task->memory, next_key_head);
    add_rows(&prefetch, attn_key_row(&keys, a->k, &p->at.k, first), rows, shape->dim_qk, &p->at.k);
    add_rows(&prefetch, attn_key_row(&keys, a->v, &p->at.v, first), rows, shape->dim_v, &p->at.v);
    if (attn_sums_of(w)->sums_in_place) return prefetch;
    add_rows(&prefetch, attn_key_row(task, a->grad_k, &g->at.grad_k, first), rows, shape->dim_qk, &g->at.grad_k);
    add_rows(&prefetch, attn_key_row(task, a->grad_v, &g->at.grad_v, first), rows, shape->dim_v, &g->at.grad_v);
    return prefetch;
}

static void open_group(const attn_task *task, int64_t number, int64_t count, int owns_head, attn_gradient_group *group,
                       const attn_split_sums *to)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    (void)to;
    group->count = 0;
    group->prefetch = (attn_prefetch){0};
    for (int64_t k = 0; k < count; k++) {
        attn_gradient_tile *tile = &group->tiles[group->count];
        if (p->has.grad_bias && !attn_bias_is_broadcast(p)) attn_clear_bias_gradient(task, number + k);
        if (!attn_gradient_tile_open(task, number + k, group->count, tile)) continue;
        clear_queries(w, tile);
        group->count++;
    }
    if (owns_head) group->prefetch = prefetch_after(task, number + count - 1);
}

static void finish_group(const attn_task *task, attn_gradient_group *group, const attn_split_sums *to)
{
    for (int64_t k = 0; k < group->count; k++) finish_tile(task, &group->tiles[k], to);
}

static void put_real(void *array, attn_dtype dtype, int64_t i, double x)
{
    if (dtype == ATTN_F32) ((float *)array)[i] = (float)x;
    else ((double *)array)[i] = x;
}

/* Slopes that heads or batch entries share have one gradient: summed over heads in order, and for each over entries. */
static void store_slopes(const attn_walk *w, const attn_args *args, char *shared)
{
    const attn_resolved *p = &w->problem;
    const int64_t B = p->shape.batch, Hq = p->shape.heads_q;
    const int64_t entries = attn_slopes_per_batch(p) ? 1 : B, heads = p->at.grad_alibi_slopes.stride[1] ? 1 : Hq; /* in one sum */
    int64_t at = 0;
    for (int64_t b = 0; b < (entries == 1 ? B : 1); b++)
        for (int64_t h = 0; h < (heads == 1 ? Hq : 1); h++) {
            double sum = 0;
            for (int64_t k = h; k < h + heads; k++)
                for (int64_t n = b; n < b + entries; n++) sum += attn_head_sums_at(w, shared, n * Hq + k)->slope;
            put_real(args->grad_alibi_slopes, w->compute, at++, sum);
        }
}

/* The gradients that are one number per head, summed over the batch in order. */
static void store_head_sums(const attn_walk *w, const attn_args *args, char *shared)
{
    const attn_resolved *p = &w->problem;
    const int64_t B = p->shape.batch, Hq = p->shape.heads_q;
    if (p->has.grad_alibi_slopes) store_slopes(w, args, shared);
    for (int64_t h = 0; h < Hq; h++) {
        attn_head_sums all = {0, 0, 0};
        for (int64_t b = 0; b < B; b++) {
            const attn_head_sums *one = attn_head_sums_at(w, shared, b * Hq + h);
            all.scale += one->scale;
            all.sink += one->sink;
        }
        if (p->has.grad_sink) put_real(args->grad_sink, w->compute, h, all.sink);
        if (p->has.grad_scale) put_real(args->grad_scale, w->compute, h, all.scale);
    }
}

/* ---- the bias, if its gradient has a walk of its own ---- */

static int open_tile(const attn_task *task, int64_t number, attn_gradient_tile *tile, const char *shared)
{
    (void)shared;
    return attn_gradient_tile_open(task, number, 0, tile);
}

static const void *derive_block(const attn_task *task, attn_gradient_tile *tile, int64_t low, int64_t high)
{
    const attn_keys keys = attn_task_keys(task, low, high);
    attn_gradient_block(task, tile, &keys);
    return attn_part(task, attn_sums_of(task->walk)->dP);
}

static void walk_tiles(const attn_walk *walk, const attn_args *args, char *workspace)
{
    const attn_resolved *p = &walk->problem;
    const attn_split_sums_target target = {&p->at.grad_k, &p->at.grad_v, args->grad_k, args->grad_v};
    const attn_chain_steps steps = {open_group, walk_keys, finish_group};
    const attn_bias_steps of_bias = {open_tile, derive_block};
    char *shared = attn_shared_of(walk, workspace);
    attn_chain_run(walk, args, workspace, &steps, &target);
    if (attn_grads_relative(p)) attn_relative_totals_store(walk, args, shared);
    if (attn_sums_weights(p)) attn_additive_sum(walk, args, shared);
    store_head_sums(walk, args, shared);
    if (p->has.grad_bias_table) attn_tables_finish(walk, args, shared);
    if (p->has.grad_bias && attn_bias_is_broadcast(p)) attn_sum_bias_gradient(walk, args, workspace, &of_bias);
}

/* ---- the plan ---- */

typedef struct attn_backward_walk {
    attn_sum_walk sums;
    attn_prepare prepare;
} attn_backward_walk;

static int init(attn_walk *walk, const attn_setting *setting)
{
    attn_backward_walk *plan = (attn_backward_walk *)walk;
    attn_tile_walk *tiles = &plan->sums.gradient.tiles;
    const attn_resolved *p = &walk->problem;
    int64_t before;
    plan->prepare.problem = *setting->problem;
    if (!attn_prepare_problem(setting->problem, &walk->problem) || !attn_relative_problem(setting->problem, &walk->problem))
        return 0;
    attn_tiles_begin(tiles);
    return attn_sums_deal(&plan->sums, setting, &p->at.grad_k, &p->at.grad_v, ATTN_MAX_TILES) &&
           attn_tables_init(&tiles->tables, walk, walk->tile_q + walk->block_kv) && attn_relative_init(tiles) &&
           attn_relative_sums_init(&plan->sums) && attn_sums_lay_out(&plan->sums, NULL, 0, NULL, 0) &&
           attn_prepare_init(&plan->prepare, walk) && attn_add(tiles->tables.bytes, tiles->relative.bytes, &before) &&
           attn_add(before, plan->prepare.bytes, &before) && attn_walk_add_bytes(walk, before, plan->prepare.bytes > 0);
}

static void run(const attn_walk *walk, const attn_args *args, char *workspace)
{
    const attn_backward_walk *plan = (const attn_backward_walk *)walk;
    const attn_tile_walk *tiles = &plan->sums.gradient.tiles;
    const attn_resolved *problem = &plan->prepare.problem;
    char *tables = workspace + plan->prepare.bytes, *relative = tables + tiles->tables.bytes;
    attn_args prepared;
    attn_prepare_begin(&plan->prepare, walk, args, workspace, &prepared);
    attn_tables_begin(&tiles->tables, walk, args, tables, &prepared);
    attn_relative_begin(tiles, problem, args, relative, &prepared);
    walk_tiles(walk, &prepared, relative + tiles->relative.bytes);
    attn_relative_finish(tiles, problem, args, &prepared);
    attn_prepare_finish(&plan->prepare, walk, args, workspace);
}

const attn_walk_type attn_walk_backward = {
    .name = "backward",
    .op = ATTN_BACKWARD,
    .supported = ATTN_USES_TILE_MASKS | ATTN_USES_BIASES | ATTN_USES_SCORES | ATTN_USES(LSE_GRADIENT) | ATTN_USES(BIAS_GRADIENT) |
                 ATTN_USES(HEAD_GRADIENTS) | ATTN_USES(MATRIX_GRADIENT) | ATTN_USES(RELATIVE_GRADIENT),
    .size = sizeof(attn_backward_walk),
    .init = init,
    .run = run,
};
