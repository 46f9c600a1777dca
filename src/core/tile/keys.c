/* SPDX-License-Identifier: MIT
 * keys.c - operands of products: keys and values of a block, in place or copied, and a tile's queries. */
#include "../base/names.h"
#include "relative.h"
#include "rotate.h"
#include "steps.h"

/* Gathers rows low .. high-1, from pages too, as rows of the compute type or of bf16 pairs with stride ld, multiplied by their
 * scales. */
static void *gather_rows(const attn_task *task, const attn_key_rows *from, int64_t dim, char *to, int64_t ld, int64_t low,
                         int64_t high)
{
    const attn_walk *w = task->walk;
    const attn_layout *layout = from->layout;
    if (attn_is_by_channel(layout->dtype)) {
        attn_load_channels(task, low, high, to, ld);
        return to;
    }
    for (int64_t j = low; j < high;) {
        int64_t n = high - j;
        const void *run = attn_key_run(task, from->base, layout, j, &n);
        void *at = to + (j - low) * ld * (int64_t)attn_dtype_bytes(w->compute);
        if (from->pairs) w->kernel.pairs->load_rows(n, dim, run, layout->stride[2], at);
        else w->kernel.storage->load_rows(n, dim, run, layout->dtype, layout->stride[2], at, ld);
        if (from->scales && attn_is_quantised(layout->dtype)) /* (prepared keys are not) */
            w->kernel.storage->scale_rows(n, dim, attn_key_run(task, from->scales, from->scale_layout, j, &n),
                                          from->scale_layout->stride[2], at, ld);
        j += n;
    }
    return to;
}

const void *attn_rows_of_keys(const attn_task *task, const attn_key_rows *from, int64_t dim, int compact, int64_t copy_at,
                              int64_t low, int64_t high, int64_t *ld)
{
    *ld = from->pairs ? attn_bf16_pairs(dim) : compact ? dim : from->layout->stride[2];
    if (!compact) return attn_key_row(task, from->base, from->layout, low);
    return gather_rows(task, from, dim, attn_part(task, copy_at), *ld, low, high);
}

static const void *keys_of(const attn_task *task, int pairs, int64_t low, int64_t high, int64_t *ld)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_resolved *p = &w->problem;
    const attn_key_rows from = {task->args->k, &p->at.k, task->args->k_scale, &p->at.k_scale, pairs};
    if (pairs) return attn_rows_of_keys(task, &from, p->shape.dim_qk, 1, at->K_pairs, low, high, ld);
    if (!attn_is_additive(p))
        return attn_rows_of_keys(task, &from, p->shape.dim_qk, attn_tiles_of(w)->compact_k, at->K, low, high, ld);
    *ld = attn_additive_key(p->shape.dim_qk); /* with space after each key for what the kernel derives from it */
    void *K = gather_rows(task, &from, p->shape.dim_qk, attn_part(task, at->K), *ld, low, high);
    w->kernel.additive->prepare_keys(high - low, p->shape.dim_qk, K, *ld);
    return K;
}

/* 1 if the rows of two tensors over keys lie at the same places. */
static int same_rows(const attn_resolved *p, const attn_layout *a, const attn_layout *b)
{
    return a->stride[0] == b->stride[0] && a->stride[2] == b->stride[2] && (p->shape.heads_kv == 1 || a->stride[1] == b->stride[1]);
}

/* 1 if values are the first channels of the keys, as in a cache of latents: what is read or copied of the keys serves both. */
static int values_are_keys(const attn_task *task)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_layout *k = &p->at.k, *v = &p->at.v;
    if (task->args->v != task->args->k || v->dtype != k->dtype || p->shape.dim_v > p->shape.dim_qk) return 0;
    if (attn_is_additive(p)) return 0;
    if (!same_rows(p, k, v)) return 0;
    if (task->args->v_scale != task->args->k_scale) return 0;
    return !task->args->k_scale || same_rows(p, &p->at.k_scale, &p->at.v_scale);
}

attn_keys attn_task_keys(const attn_task *task, int64_t low, int64_t high)
{
    const attn_walk *w = task->walk;
    const attn_tile_scratch *at = &attn_tiles_of(w)->scratch;
    const attn_resolved *p = &w->problem;
    const int bf16 = attn_scores_bf16(w), both = bf16 && p->op == ATTN_BACKWARD;
    const attn_key_rows values = {task->args->v, &p->at.v, task->args->v_scale, &p->at.v_scale, both};
    attn_keys keys = {.low = low, .high = high};
    keys.K = keys.K_wide = keys_of(task, bf16, low, high, &keys.ldk);
    keys.ldk_wide = keys.ldk;
    if (both) keys.K_wide = keys_of(task, 0, low, high, &keys.ldk_wide);
    if (!bf16 && values_are_keys(task)) {
        keys.V = keys.K;
        keys.ldv = keys.ldk;
        return keys;
    }
    keys.V = attn_rows_of_keys(task, &values, p->shape.dim_v, attn_tiles_of(w)->compact_v, at->V, low, high, &keys.ldv);
    return keys;
}

attn_keys attn_task_keys_only(const attn_task *task, int64_t low, int64_t high)
{
    attn_keys keys = {.low = low, .high = high};
    keys.K = keys.V = keys_of(task, attn_scores_bf16(task->walk), low, high, &keys.ldk);
    keys.ldv = keys.ldk;
    return keys;
}

attn_keys attn_keys_within(const attn_task *task, const attn_keys *keys, int64_t low, int64_t high)
{
    attn_keys part = *keys;
    part.low = attn_max(low, keys->low);
    part.high = attn_min(high, keys->high);
    const int64_t before = (part.low - keys->low) * (int64_t)attn_dtype_bytes(task->walk->compute);
    part.K = (const void *)((uintptr_t)keys->K + (uintptr_t)(before * keys->ldk));
    part.V = (const void *)((uintptr_t)keys->V + (uintptr_t)(before * keys->ldv));
    part.K_wide = (const void *)((uintptr_t)keys->K_wide + (uintptr_t)(before * keys->ldk_wide));
    return part;
}

void attn_task_pack(const attn_task *task, const attn_tile *tile, void *Qt)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const attn_layout *q = &p->at.q;
    const double scale = attn_is_additive(p) ? 1 : attn_task_scale(task);
    const int rotated = task->args->rotation != NULL;
    const void *rows = rotated ? attn_tile_rotate(task, tile) : attn_query_row(task, task->args->q, q, tile->first);
    const int64_t ld = rotated ? p->shape.dim_qk : q->stride[2];
    if (attn_scores_bf16(w)) {
        w->kernel.pairs->pack_query(tile->width, tile->rows, p->shape.dim_qk, rows, ld, Qt);
        return;
    }
    w->kernel.storage->pack_query(tile->width, tile->rows, p->shape.dim_qk, rows, q->dtype, ld, scale, Qt);
    if (attn_is_additive(p)) w->kernel.additive->prepare_queries(tile->width, p->shape.dim_qk, attn_task_weights(task), Qt);
    if (attn_has_relative(p)) attn_relative_forget(task, tile);
    if (!attn_tiles_of(w)->relative.two) return;
    w->kernel.storage->pack_query(tile->width, tile->rows, p->shape.dim_qk,
                                  attn_query_row(task, task->args->relative_v, q, tile->first), q->dtype, q->stride[2], scale,
                                  (char *)Qt + attn_tiles_of(w)->relative.Qrt);
}
