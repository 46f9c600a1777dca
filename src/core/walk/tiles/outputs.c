/* SPDX-License-Identifier: MIT
 *
 * outputs.c - the second pass over a query tile: with its m and l final, every block is scored again and turned into the requested
 * outputs.
 *
 *      for each block of keys:
 *          score, modify     the largest, and scores to be stored
 *          entropy, top-k    from the scores
 *          normalise         weights to be stored
 */
#include "outputs.h"

#include <math.h>
#include <string.h>

#include "../../base/names.h"
#include "../../tile/relative.h"
#include "../../tile/runs.h"

/* ---- pairs: dense weights and scores, and rows for the caller's view ---- */

static attn_pairs dense_pairs(const attn_task *task, attn_stage stage, const void *base, const attn_layout *layout, int64_t first)
{
    attn_pairs pairs = {stage, attn_pair_at(task, base, layout, first, 0), layout->dtype, layout->stride[2]};
    return pairs;
}

int attn_requested_pairs(const attn_task *task, int64_t first, attn_pairs pairs[ATTN_MAX_PAIRS])
{
    const attn_resolved *p = &task->walk->problem;
    int count = 0;
    if (p->has.weights) pairs[count++] = dense_pairs(task, ATTN_STAGE_WEIGHTS, task->args->weights, &p->at.weights, first);
    if (p->has.scores) pairs[count++] = dense_pairs(task, p->outputs.scores_stage, task->args->scores, &p->at.scores, first);
    return count;
}

static attn_pairs viewed_pairs(const attn_task *task)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    attn_pairs pairs = {w->problem.outputs.rows_stage, attn_part(task, plan->scratch.rows), w->compute, w->problem.shape.len_kv};
    return pairs;
}

void attn_pairs_clear(const attn_task *task, const attn_pairs *pairs, int64_t rows)
{
    static const float f32 = -INFINITY;
    static const double f64 = -INFINITY;
    static const uint16_t f16 = 0xfc00, bf16 = 0xff80;
    const void *none = pairs->dtype == ATTN_F32   ? (const void *)&f32
                       : pairs->dtype == ATTN_F64 ? (const void *)&f64
                       : pairs->dtype == ATTN_F16 ? (const void *)&f16
                                                  : (const void *)&bf16;
    size_t size = attn_dtype_bytes(pairs->dtype), n = (size_t)task->walk->problem.shape.len_kv;
    for (int64_t i = 0; i < rows && n; i++) {
        char *row = pairs->base + i * pairs->stride * (int64_t)size;
        if (pairs->stage == ATTN_STAGE_WEIGHTS) {
            memset(row, 0, n * size);
        } else {
            for (size_t j = 0; j < n; j++) memcpy(row + j * size, none, size);
        }
    }
}

/* Stores n keys from key `first` on, as they are in S. */
static void store(const attn_task *task, const attn_finished *f, const attn_pairs *pairs, int64_t first, int64_t n)
{
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    task->walk->kernel.storage->store_columns(f->tile->width, f->tile->rows, n, 1, attn_part(task, at->S),
                                              pairs->base + first * (int64_t)attn_dtype_bytes(pairs->dtype), pairs->dtype,
                                              pairs->stride);
}

/* Stores the scores before anything is dropped, of all existing keys. */
static void store_undropped(const attn_task *task, const attn_finished *f, const attn_pairs *pairs)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_resolved *p = &w->problem;
    int64_t all = attn_keys_are_packed(p) || attn_is_paged(p) ? task->visibility.len_kv : p->shape.len_kv;
    void *S = attn_part(task, at->S), *block_max = attn_part(task, at->block_max);
    if (f->keys.low == f->keys.high) attn_task_pack(task, f->tile, f->Qt);
    for (int64_t j = 0; j < all;) {
        attn_keys keys = attn_task_keys_only(task, j, attn_block_end(w, j, all));
        int64_t n = keys.high - keys.low;
        attn_task_score_raw(task, f->tile, f->Qt, &keys);
        if (p->has.relative_keys)
            attn_relative_add(task, f->tile, &keys, ATTN_RELATIVE_KEYS, (const char *)f->Qt + attn_tiles_of(w)->relative.Qrt, S);
        if (pairs->stage == ATTN_STAGE_CAPPED && p->score.softcap > 0)
            w->kernel.modify->softcap(f->tile->width, n, S, block_max, p->score.softcap, NULL, NULL);
        store(task, f, pairs, j, n);
        j = keys.high;
    }
}

/* ---- rows: one or a few numbers per query ---- */

static int needs_rows(const attn_resolved *p)
{
    return p->has.row_max || p->has.entropy || p->has.effective_keys || p->outputs.topk > 0;
}

static void start_rows(const attn_task *task)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    double *sums = attn_part(task, plan->scratch.row_sums);
    int64_t *index = attn_part(task, plan->scratch.top_index);
    for (int64_t i = 0; i < w->tile_q; i++) attn_real_put(attn_part(task, plan->scratch.row_max), w->compute, i, -INFINITY);
    for (int64_t i = 0; i < 2 * w->tile_q; i++) sums[i] = 0;
    for (int64_t i = 0; i < attn_topk_kept(&w->problem) * w->tile_q; i++) {
        attn_real_put(attn_part(task, plan->scratch.top), w->compute, i, -1);
        index[i] = -1;
    }
}

static void put_row(const attn_task *task, int requested, const void *base, const attn_layout *layout, int64_t i, double x)
{
    if (requested) attn_real_put(attn_query_row(task, base, layout, i), layout->dtype, 0, x);
}

/* free: the weight beside index -1; NaN: that of all, in a row that is NaN. */
static void put_top(const attn_task *task, int64_t lane, int64_t i, double free)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_resolved *p = &w->problem;
    const attn_layout *index_layout = &p->at.topk_index, *weight_layout = &p->at.topk_weight;
    const int64_t *index = attn_part(task, plan->scratch.top_index);
    const void *top = attn_part(task, plan->scratch.top);
    void *indices = p->has.topk_index ? attn_query_row(task, task->args->topk_index, index_layout, i) : NULL;
    void *weights = p->has.topk_weight ? attn_query_row(task, task->args->topk_weight, weight_layout, i) : NULL;
    const int64_t kept = attn_topk_kept(p);
    for (int64_t t = 0; t < p->outputs.topk; t++) {
        const int64_t at = t * w->tile_q + lane, key = t < kept && !isnan(free) ? index[at] : -1;
        if (p->has.topk_weight) attn_real_put(weights, weight_layout->dtype, t, key < 0 ? free : attn_real_at(top, w->compute, at));
        if (!p->has.topk_index) continue;
        if (index_layout->dtype == ATTN_I32) ((int32_t *)indices)[t] = (int32_t)key;
        else ((int64_t *)indices)[t] = key;
    }
}

/* With d = s - m, weights are exp(d) / l and their logarithms d - log(l), so the entropy is (log(l) sum exp(d) - sum exp(d) d) / l.
 */
static void finish_rows(const attn_task *task, const attn_finished *f)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_resolved *p = &w->problem;
    const attn_args *a = task->args;
    const double *sums = attn_part(task, plan->scratch.row_sums);
    for (int64_t lane = 0; lane < f->tile->rows; lane++) {
        int64_t i = f->tile->first + lane;
        double most = attn_real_at(attn_part(task, plan->scratch.row_max), w->compute, lane),
               l = attn_real_at(f->l, w->compute, lane);
        int broken = isnan(l), sees = most > -INFINITY || (f->empty && f->empty[lane]);
        double entropy = broken ? l : 0;
        if (sees && !broken) entropy = fmax(0, (log(l) * sums[lane] - sums[w->tile_q + lane]) / l);
        put_row(task, p->has.row_max, a->row_max, &p->at.row_max, i, broken ? l : most);
        put_row(task, p->has.entropy, a->entropy, &p->at.entropy, i, entropy);
        put_row(task, p->has.effective_keys, a->effective_keys, &p->at.effective_keys, i, sees || broken ? exp(entropy) : 0);
        if (p->outputs.topk) put_top(task, lane, i, broken ? l : 0);
    }
}

/* ---- the walk ---- */

static void use_block(const attn_task *task, const attn_finished *f, const attn_keys *keys, const attn_pairs *pairs, int count)
{
    const attn_walk *w = task->walk;
    const attn_forward_walk *plan = attn_forward_of(w);
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_resolved *p = &w->problem;
    const attn_outputs_part *kernel = w->kernel.outputs;
    const double probability = w->problem.dropout.probability;
    const int width = f->tile->width;
    const int64_t n = keys->high - keys->low;
    void *S = attn_part(task, at->S);
    int weights = 0;

    attn_task_score(task, f->tile, f->Qt, keys, NULL, NULL);
    if (needs_rows(p)) kernel->keep_max(width, attn_part(task, at->block_max), attn_part(task, plan->scratch.row_max));
    for (int k = 0; k < count; k++) {
        if (pairs[k].stage == ATTN_STAGE_BIASED) store(task, f, &pairs[k], keys->low, n);
        weights |= pairs[k].stage == ATTN_STAGE_WEIGHTS;
    }
    if (f->empty) w->kernel.modify->unmask_empty(width, n, S, f->empty);
    if (p->has.entropy || p->has.effective_keys) kernel->add_entropy(width, n, S, f->m, attn_part(task, plan->scratch.row_sums));
    if (attn_topk_kept(p) > 0)
        kernel->take_top(width, f->tile->rows, n, S, f->m, f->l, keys->low, attn_topk_kept(p), attn_part(task, plan->scratch.top),
                         attn_part(task, plan->scratch.top_index));
    if (!weights) return;
    attn_task_normalise(task, width, n, f->m, f->l);
    if (p->outputs.after_dropout && attn_drops_weights(&w->problem)) {
        attn_drop drop;
        attn_task_drop(task, f->tile, keys->low, &drop);
        kernel->drop_weights(width, n, S, &drop, probability < 1 ? 1 / (1 - probability) : 0);
    }
    for (int k = 0; k < count; k++)
        if (pairs[k].stage == ATTN_STAGE_WEIGHTS) store(task, f, &pairs[k], keys->low, n);
}

void attn_outputs_of_tile(const attn_task *task, const attn_finished *f, char *shared)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    attn_pairs pairs[ATTN_MAX_PAIRS];
    int count = attn_requested_pairs(task, f->tile->first, pairs), walk = needs_rows(p);

    if (p->has.rows) pairs[count++] = viewed_pairs(task);
    for (int k = 0; k < count; k++) {
        attn_pairs_clear(task, &pairs[k], f->tile->rows);
        if (pairs[k].stage < ATTN_STAGE_BIASED) store_undropped(task, f, &pairs[k]);
        else walk = 1;
    }
    if (needs_rows(p)) start_rows(task);
    attn_interval run = {f->keys.low, f->keys.low};
    while (walk && attn_task_next(task, f->tile, f->empty != NULL, f->keys.high, &run)) {
        attn_keys keys = attn_task_keys_only(task, run.low, run.high);
        use_block(task, f, &keys, pairs, count);
    }
    if (needs_rows(p)) finish_rows(task, f);
    if (p->has.rows) {
        const attn_pairs *visible = &pairs[count - 1];
        attn_rows rows = {task->b,       task->h,        f->tile->first, f->tile->rows, w->problem.shape.len_kv,
                          visible->base, visible->dtype, visible->stride};
        task->args->call.visit_rows(task->args->call.visit_context, &rows);
    }
    if (p->has.column_sum) attn_columns_keep(task, f, shared);
}
