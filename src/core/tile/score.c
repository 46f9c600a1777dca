/* SPDX-License-Identifier: MIT
 *
 * score.c - scores of a tile, and their modifications.  Features not in use cost nothing; each one in use is one pass over a block
 * in the cache.
 */
#include <math.h>
#include <string.h>

#include "../base/names.h"
#include "../task/tree.h"
#include "relative.h"
#include "runs.h"
#include "steps.h"
#include "tables.h"

static attn_block block_at(const attn_task *task, const void *base, const attn_layout *layout, int64_t i, int64_t j)
{
    attn_block block = {attn_pair_at(task, base, layout, i, j), layout->dtype, layout->stride[2], layout->stride[3]};
    return block;
}

/* Keys low .. high-1 of the sequence, which follow one another in a block, with their scores and where their maxima go. */
typedef struct key_run {
    int64_t low, high;
    void *S, *most;
} key_run;

/* A block whose keys follow one another: all but those of a list. */
static key_run whole_block(const attn_task *task, const attn_keys *keys)
{
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    return (key_run){keys->low, keys->high, attn_part(task, at->S), attn_part(task, at->block_max)};
}

/* Masks pairs whose bytes in scratch.expanded are 0. */
static void keep_bytes(const attn_task *task, const attn_tile *tile, const key_run *run)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const int64_t n = run->high - run->low;
    const attn_block mask = {attn_part(task, at->expanded), ATTN_BOOL, n, 1};
    w->kernel.modify->keep_mask(tile->width, tile->rows, n, run->S, run->most, &mask, attn_part(task, at->modifiers));
}

/* A tile that intervals cannot describe: a byte for each pair. */
static void keep_pairs(const attn_task *task, const attn_tile *tile, const attn_keys *keys)
{
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    unsigned char *bytes = attn_part(task, at->expanded);
    int64_t n = keys->high - keys->low;
    for (int64_t i = 0; i < tile->rows; i++) {
        attn_visible_keys seen = attn_keys_of_query(&task->visibility, tile->first + i);
        attn_query_mark(&task->visibility, &seen, tile->first + i, keys->low, keys->high, bytes + i * n);
    }
    const key_run all = whole_block(task, keys);
    keep_bytes(task, tile, &all);
}

/* The interval of each lane within the block, in scratch.low and high.  Returns 0 if some query has a gap inside the block. */
static int find_intervals(const attn_task *task, const attn_tile *tile, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    int32_t *low = attn_part(task, at->low), *high = attn_part(task, at->high);
    for (int64_t i = 0; i < tile->width * w->kernel.lanes; i++) {
        attn_visible_keys seen = attn_keys_of_query(&task->visibility, tile->first + attn_min(i, tile->rows - 1));
        int local = seen.local.low<keys->high, global = seen.global.high> keys->low; /* if not empty */
        const attn_interval *part = global ? &seen.global : &seen.local;
        low[i] = (int32_t)(attn_clamp(part->low, keys->low, keys->high) - keys->low);
        high[i] = (int32_t)(attn_clamp(part->high, keys->low, keys->high) - keys->low);
        if (local && global) return 0;
    }
    return 1;
}

static void keep_visible(const attn_task *task, const attn_tile *tile, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    if (task->visibility.dilation > 1 || !find_intervals(task, tile, keys)) {
        keep_pairs(task, tile, keys);
        return;
    }
    void *S = attn_part(task, at->S);
    w->kernel.modify->keep_range(tile->width, keys->high - keys->low, S, attn_part(task, at->low), attn_part(task, at->high));
    w->kernel.modify->block_max(tile->width, keys->high - keys->low, S, attn_part(task, at->block_max));
}

/* 1 if the tile's intervals move forward with the query: then they form a band, and scores outside it need not be computed. */
static int has_band(const attn_task *task, const attn_tile *tile)
{
    const attn_visibility *visibility = &task->visibility;
    return !visibility->ranges && !visibility->list && !visibility->global_q && !visibility->global_kv &&
           visibility->dilation == 1 && tile->first + tile->rows <= visibility->len_q;
}

/* Like find_intervals, for a band: the interval of each lane is one key further than that of the lane before. */
static void find_band(const attn_task *task, const attn_tile *tile, const attn_keys *keys)
{
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    const attn_visibility *visibility = &task->visibility;
    const int64_t unbounded = 1 << 20, n = keys->high - keys->low; /* more than the size of any block or tile */
    if (visibility->chunk || visibility->rows_of_query > 1) {
        (void)find_intervals(task, tile, keys);
        return;
    }
    int32_t *low = attn_part(task, at->low), *high = attn_part(task, at->high);
    int64_t position = attn_add_saturate(tile->first, visibility->offset), from = attn_add_saturate(position, -visibility->left);
    int64_t to = attn_add_saturate(attn_add_saturate(position, visibility->right), 1);
    from = visibility->left == INT64_MAX ? -unbounded : attn_clamp(attn_add_saturate(from, -keys->low), -unbounded, unbounded);
    to = visibility->right == INT64_MAX ? unbounded : attn_clamp(attn_add_saturate(to, -keys->low), -unbounded, unbounded);
    /* If fully masked rows are uniform, blocks after the sequence's end are visited too. */
    const int32_t most = (int32_t)attn_clamp(visibility->len_kv - keys->low, 0, n);
    const int32_t first = (int32_t)from, last = (int32_t)to, rows = (int32_t)tile->rows;
    for (int32_t i = 0; i < tile->width * task->walk->kernel.lanes; i++) {
        const int32_t lane = i < rows ? i : rows - 1, begin = first + lane, end = last + lane;
        low[i] = begin < 0 ? 0 : begin > most ? most : begin;
        high[i] = end < 0 ? 0 : end > most ? most : end;
    }
}

/* Applies the block mask to a tile: its entries are expanded to a byte for each pair.  Returns 0 if every pair is kept. */
static int keep_blocks(const attn_task *task, const attn_tile *tile, const attn_keys *keys)
{
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    unsigned char *bytes = attn_part(task, at->expanded);
    const key_run all = whole_block(task, keys);
    if (attn_blocks_expand(task, tile, keys->low, keys->high, bytes)) return 0;
    keep_bytes(task, tile, &all);
    return 1;
}

/* Masks the last keys by the bits of their queries.  Returns 0 if all of them are kept. */
static int keep_tree(const attn_task *task, const attn_tile *tile, const key_run *run)
{
    const attn_tile_scratch *at = &attn_tiles_of(task->walk)->scratch;
    unsigned char *bytes = attn_part(task, at->expanded);
    const int64_t n = run->high - run->low, end = attn_min(run->high, task->visibility.all_kv),
                  first = attn_tree_first(&task->walk->problem, task->visibility.all_kv), low = attn_max(run->low, first);
    int all = 1;
    if (low >= end) return 0;
    memset(bytes, 1, (size_t)(tile->rows * n));
    for (int64_t i = 0; i < tile->rows; i++)
        all &= attn_tree_expand(attn_tree_words(task, tile->first + i), first, low, end, bytes + i * n + low - run->low);
    if (!all) keep_bytes(task, tile, run);
    return !all;
}

/* Masks the keys that are too near to their query.  Returns 0 if there are none. */
static int drop_near(const attn_task *task, const attn_tile *tile, const key_run *run)
{
    const attn_walk *w = task->walk;
    const int64_t n = run->high - run->low, nearest = w->problem.mask.least_distance - 1;
    int32_t low[ATTN_MAX_LANES], high[ATTN_MAX_LANES];
    int any = 0;
    for (int64_t i = 0; i < tile->width * w->kernel.lanes; i++) {
        const int64_t query = tile->first + attn_min(i, tile->rows - 1) - run->low;
        const int64_t position = attn_add_saturate(query, task->visibility.offset);
        low[i] = (int32_t)attn_clamp(attn_add_saturate(position, -nearest), 0, n);
        high[i] = (int32_t)attn_clamp(attn_add_saturate(attn_add_saturate(position, nearest), 1), 0, n);
        any |= low[i] < high[i];
    }
    if (any) w->kernel.modify->drop_range(tile->width, n, run->S, run->most, low, high);
    return any;
}

/* Returns 1 if it may have masked a key. */
static int add_bias_table(const attn_task *task, const attn_tile *tile, const key_run *run)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const int64_t n = run->high - run->low, size = (int64_t)attn_dtype_bytes(w->compute);
    const int64_t first = attn_add_saturate(tile->first, task->visibility.offset);
    const void *diagonals =
        attn_diagonals_at(&attn_tiles_of(w)->tables, task, first, run->high - 1, n + tile->width * w->kernel.lanes - 1);
    if (!attn_tables_special(task)) {
        w->kernel.modify->add_diagonals(tile->width, n, run->S, diagonals, run->most);
        return 0;
    }
    const attn_block bias = {(const char *)diagonals + (n - 1) * size, w->compute, 1, -1};
    w->kernel.modify->add_bias(tile->width, tile->rows, n, run->S, run->most, &bias, attn_part(task, at->modifiers));
    return 1;
}

/* Prefetch hint for the caller's bias or mask block that the scores need next, if its rows are contiguous along the keys: it is
 * read once, so it is not in the cache. */
static attn_prefetch_hint caller_block(const attn_task *task, const attn_tile *tile, const attn_keys *keys)
{
    const attn_resolved *p = &task->walk->problem;
    attn_prefetch_hint hint = {0};
    const int bias = p->has.bias;
    if (!bias && !p->has.mask) return hint;
    const attn_block block = bias ? block_at(task, task->args->bias, &p->at.bias, tile->first, keys->low)
                                  : block_at(task, task->args->mask, &p->at.mask, tile->first, keys->low);
    if (block.stride_k != 1 || block.stride_q == 0) return hint;
    const int64_t size = (int64_t)attn_dtype_bytes(block.dtype);
    return (attn_prefetch_hint){block.base, tile->rows, (keys->high - keys->low) * size, block.stride_q * size};
}

/* Dispatches by the kind of score.  segments: only within scratch.low and high; beside: as in score_beside. */
static void score(const attn_task *task, const attn_tile *tile, const void *Qt, const attn_keys *keys, int segments,
                  const void *next, int64_t next_ld, const attn_prefetch_hint *beside)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_kernel *k = &w->kernel;
    const int64_t n = keys->high - keys->low, D = w->problem.shape.dim_qk;
    void *S = attn_part(task, at->S), *most = attn_part(task, at->block_max);
    const int32_t *low = attn_part(task, at->low), *high = attn_part(task, at->high);
    const int in_order = w->problem.invariant && w->problem.op == ATTN_FORWARD;
    if (attn_is_additive(&w->problem)) {
        const void *weights = attn_task_weights(task);
        const double scale = attn_task_scale(task);
        if (segments) k->additive->score_seen(tile->width, n, D, Qt, keys->K, keys->ldk, weights, scale, S, most, low, high);
        else k->additive->score(tile->width, n, D, Qt, keys->K, keys->ldk, weights, scale, S, most);
    } else if (k->pairs) {
        const double scale = attn_task_scale(task);
        const attn_pairs_part *part = k->pairs;
        if (segments)
            (in_order ? part->score_seen_in_order : part->score_seen)(tile->width, n, D, Qt, keys->K, scale, S, most, low, high,
                                                                      next, next_ld);
        else (in_order ? part->score_in_order : part->score)(tile->width, n, D, Qt, keys->K, scale, S, most, next, next_ld, beside);
    } else {
        const attn_product_part *part = k->product;
        if (segments)
            (in_order ? part->score_seen_in_order : part->score_seen)(tile->width, n, D, Qt, keys->K, keys->ldk, S, most, low, high,
                                                                      next, next_ld);
        else
            (in_order ? part->score_beside_in_order : part->score_beside)(tile->width, n, D, Qt, keys->K, keys->ldk, S, most, next,
                                                                          next_ld, beside);
    }
}

void attn_task_score_raw(const attn_task *task, const attn_tile *tile, const void *Qt, const attn_keys *keys)
{
    const attn_prefetch_hint nothing = {0};
    score(task, tile, Qt, keys, 0, keys->K, keys->ldk, &nothing);
}

/* Modifiers that depend on where keys are in their sequence.  Returns 1 if they may have masked one. */
static int modify_run(const attn_task *task, const attn_tile *tile, const key_run *run)
{
    const attn_resolved *p = &task->walk->problem;
    const attn_modify_part *modify = task->walk->kernel.modify;
    const int64_t n = run->high - run->low;
    void *scratch = attn_part(task, attn_tiles_of(task->walk)->scratch.modifiers);
    int cut = 0;
    if (p->has.bias) {
        attn_block bias = block_at(task, task->args->bias, &p->at.bias, tile->first, run->low);
        modify->add_bias(tile->width, tile->rows, n, run->S, run->most, &bias, scratch);
    }
    if (p->has.alibi_slopes) {
        const int64_t first = attn_add_saturate(tile->first - run->low, task->visibility.offset);
        modify->add_alibi(tile->width, tile->rows, n, run->S, run->most, attn_task_slope(task), first);
    }
    if (p->has.bias_table) cut = add_bias_table(task, tile, run);
    if (p->has.mask) {
        attn_block mask = block_at(task, task->args->mask, &p->at.mask, tile->first, run->low);
        modify->keep_mask(tile->width, tile->rows, n, run->S, run->most, &mask, scratch);
        cut = 1;
    }
    if (p->has.tree) cut |= keep_tree(task, tile, run);
    if (p->mask.least_distance > 0) cut |= drop_near(task, tile, run);
    return cut;
}

/* The same for a block, run by run if its keys are those of a list. */
static int modify_by_place(const attn_task *task, const attn_tile *tile, const attn_keys *keys)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const key_run all = whole_block(task, keys);
    _Alignas(64) char most[ATTN_MAX_LANES * sizeof(double)]; /* of a run, not of the block */
    int cut = 0;
    if (!task->visibility.list) return modify_run(task, tile, &all);
    if (!p->has.bias && !p->has.alibi_slopes && !p->has.bias_table && !p->has.mask && !p->has.tree && !p->mask.least_distance)
        return 0;
    for (int64_t t = keys->low, n; t < keys->high; t += n) {
        n = keys->high - t;
        const int64_t key = attn_listed_key(&task->visibility, t, &n);
        char *S = (char *)all.S + (t - keys->low) * w->tile_q * (int64_t)attn_dtype_bytes(w->compute);
        const key_run run = {key, key + n, S, most};
        cut |= modify_run(task, tile, &run);
    }
    w->kernel.modify->block_max(tile->width, keys->high - keys->low, all.S, all.most);
    return cut;
}

int attn_task_score(const attn_task *task, const attn_tile *tile, const void *Qt, const attn_keys *keys, void *slope,
                    void *curvature)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_resolved *p = &w->problem;
    const attn_kernel *kernel = &w->kernel;
    int64_t n = keys->high - keys->low;
    void *S = attn_part(task, at->S), *block_max = attn_part(task, at->block_max);

    const void *next = keys->V;
    int64_t next_ld = keys->ldv;
    attn_task_prefetch(task, n, &next, &next_ld);
    const int edge = !attn_tile_sees_all(&task->visibility, &tile->visible, keys->low, keys->high),
              segments = edge && has_band(task, tile);
    if (segments) find_band(task, tile, keys);
    const attn_prefetch_hint beside = caller_block(task, tile, keys);
    score(task, tile, Qt, keys, segments, next, next_ld, &beside);

    if (p->has.relative_keys)
        attn_relative_add(task, tile, keys, ATTN_RELATIVE_KEYS, (const char *)Qt + attn_tiles_of(w)->relative.Qrt, S);
    if (p->score.softcap > 0) kernel->modify->softcap(tile->width, n, S, block_max, p->score.softcap, slope, curvature);
    if (p->has.modifier) attn_task_modify(task, tile, keys);
    int cut = modify_by_place(task, tile, keys);
    if (attn_has_blocks(task)) cut |= keep_blocks(task, tile, keys);
    const int unmasked = p->has.alibi_slopes || p->score.softcap > 0 || p->has.modifier ||
                         p->has.relative_keys; /* they turn -infinity into something else */
    if (edge && (!segments || unmasked)) {
        keep_visible(task, tile, keys);
        cut = 1;
    }
    return (cut || segments || p->has.bias || p->has.modifier ? ATTN_SCORE_DROPPED : 0) | (segments ? ATTN_SCORE_SEGMENTS : 0);
}

void attn_task_normalise(const attn_task *task, int width, int64_t n, const void *m, const void *l)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_score *how = &w->problem.score;
    void *S = attn_part(task, at->S);
    if (attn_is_elementwise(&w->problem)) w->kernel.elementwise->weights_over(how->normaliser, how->shift, width, n, S, l);
    else w->kernel.outputs->normalise(width, n, S, m, l);
}

const attn_drop *attn_task_drop(const attn_task *task, const attn_tile *tile, int64_t low, attn_drop *drop)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_origin *origin = &task->args->origin;
    if (!attn_drops_weights(p)) return NULL;
    drop->given = (attn_block){0};
    if (p->has.dropout_given) drop->given = block_at(task, task->args->dropout_given, &p->at.dropout_given, tile->first, low);
    drop->seed = task->args->call.dropout_seed;
    drop->offset = task->args->call.dropout_offset;
    drop->head = (uint32_t)((task->b + origin->batch) * origin->heads + task->h + origin->head);
    drop->threshold = (uint64_t)ceil(p->dropout.probability * 4294967296.0);
    drop->first_q = tile->first + origin->q;
    drop->rows = tile->rows;
    drop->first_kv = low + origin->kv;
    return drop;
}
