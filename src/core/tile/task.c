/* SPDX-License-Identifier: MIT
 * task.c - where a task's rows lie, and the numbers of its head. */
#include "task.h"

#include <math.h>

#include "../base/names.h"
#include "relative.h"

static attn_task task_of(const attn_walk *walk, const attn_args *args, char *memory, int64_t b, int64_t h, int64_t g)
{
    attn_task task;
    task.walk = walk;
    task.args = args;
    task.memory = memory;
    task.b = b;
    task.h = h;
    task.g = g;
    task.sight = attn_sight_of(&walk->problem, args, b, h);
    task.ahead = NULL;
    return task;
}

attn_task attn_task_of_head(const attn_walk *walk, const attn_args *args, char *memory, int64_t head)
{
    const attn_shape *shape = &walk->problem.shape;
    const int64_t h = head % shape->heads_q, g = shape->heads_q == shape->heads_kv ? h : h / (shape->heads_q / shape->heads_kv);
    return task_of(walk, args, memory, head / shape->heads_q, h, g);
}

attn_task attn_task_of_key_head(const attn_walk *walk, const attn_args *args, char *memory, int64_t key_head)
{
    const attn_shape *shape = &walk->problem.shape;
    const int64_t g = key_head % shape->heads_kv;
    return task_of(walk, args, memory, key_head / shape->heads_kv, g * (shape->heads_q / shape->heads_kv), g);
}

/* By way of integers, since a tensor without elements may be NULL. */
static char *at(const void *base, const attn_layout *layout, int64_t elements)
{
    return (char *)((uintptr_t)base + (uintptr_t)(elements * (int64_t)attn_dtype_bytes(layout->dtype)));
}

char *attn_query_row(const attn_task *task, const void *base, const attn_layout *layout, int64_t t)
{
    const int64_t *stride = layout->stride;
    const attn_resolved *p = &task->walk->problem;
    if (attn_is_packed(p) && !p->rows_of_query)
        return at(base, layout, task->h * stride[1] + (task->sight.first_q + t) * stride[2]);
    return at(base, layout, task->b * stride[0] + task->h * stride[1] + t * stride[2]);
}

char *attn_key_row(const attn_task *task, const void *base, const attn_layout *layout, int64_t t)
{
    const int64_t *stride = layout->stride;
    if (task->walk->problem.has.cu_seqlens_q) return at(base, layout, task->g * stride[1] + (task->sight.first_kv + t) * stride[2]);
    return at(base, layout, task->b * stride[0] + task->g * stride[1] + t * stride[2]);
}

char *attn_pair_at(const attn_task *task, const void *base, const attn_layout *layout, int64_t i, int64_t j)
{
    const int64_t *stride = layout->stride;
    return at(base, layout, task->b * stride[0] + task->h * stride[1] + i * stride[2] + j * stride[3]);
}

const char *attn_key_run(const attn_task *task, const void *base, const attn_layout *layout, int64_t t, int64_t *count)
{
    const attn_resolved *p = &task->walk->problem;
    const attn_paging *paging = &p->paging;
    if (!attn_is_paged(p)) return attn_key_row(task, base, layout, t);
    int64_t number = t / paging->page_size, into = t % paging->page_size;
    int64_t page = attn_index_at(task->args->page_table, p->at.page_table.dtype, task->b * p->at.page_table.stride[0] + number);
    *count = attn_min(*count, paging->page_size - into);
    return at(base, layout, page * layout->stride[0] + task->g * layout->stride[1] + into * layout->stride[2]);
}

/* Keys, values or their tangents, with a scale for each row where they are i8. */
typedef struct rows {
    const void *base;
    const attn_layout *layout;
    const void *scales;
    const attn_layout *scale_layout;
    int pairs; /* brought into pairs of bf16, not the compute type */
} rows;

/* Rows low .. high-1 as rows of the compute type, or of pairs, with steps of ld; wherever their pages are, and times their scales.
 */
static void *gather_rows(const attn_task *task, const rows *from, int64_t dim, char *to, int64_t ld, int64_t low, int64_t high)
{
    const attn_walk *w = task->walk;
    const attn_layout *layout = from->layout;
    for (int64_t j = low; j < high;) {
        int64_t n = high - j;
        const void *run = attn_key_run(task, from->base, layout, j, &n);
        void *at = to + (j - low) * ld * (int64_t)attn_dtype_bytes(w->compute);
        if (from->pairs) w->kernel->bf16->load_rows(n, dim, run, layout->stride[2], at);
        else w->kernel->load_rows(n, dim, run, layout->dtype, layout->stride[2], at, ld);
        if (layout->dtype == ATTN_I8)
            w->kernel->scale_rows(n, dim, attn_key_run(task, from->scales, from->scale_layout, j, &n),
                                  from->scale_layout->stride[2], at, ld);
        j += n;
    }
    return to;
}

static const void *rows_of(const attn_task *task, const rows *from, int64_t dim, int compact, int64_t copy_at, int64_t low,
                           int64_t high, int64_t *ld)
{
    *ld = from->pairs ? attn_bf16_pairs(dim) : compact ? dim : from->layout->stride[2];
    if (!compact) return attn_key_row(task, from->base, from->layout, low);
    return gather_rows(task, from, dim, attn_part(task, copy_at), *ld, low, high);
}

static const void *keys_of(const attn_task *task, int pairs, int64_t low, int64_t high, int64_t *ld)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const rows from = {task->args->k, &p->at.k, task->args->k_scale, &p->at.k_scale, pairs};
    if (pairs) return rows_of(task, &from, p->shape.dim_qk, 1, w->scratch.K_pairs, low, high, ld);
    if (!attn_is_additive(p)) return rows_of(task, &from, p->shape.dim_qk, w->compact_k, w->scratch.K, low, high, ld);
    *ld = attn_additive_key(p->shape.dim_qk); /* with room after each key for what the kernel makes of it */
    void *K = gather_rows(task, &from, p->shape.dim_qk, attn_part(task, w->scratch.K), *ld, low, high);
    w->kernel->additive.prepare_keys(high - low, p->shape.dim_qk, K, *ld);
    return K;
}

attn_keys attn_task_keys(const attn_task *task, int64_t low, int64_t high)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const int bf16 = attn_scores_bf16(w), both = bf16 && p->op == ATTN_BACKWARD;
    const rows values = {task->args->v, &p->at.v, task->args->v_scale, &p->at.v_scale, both};
    attn_keys keys = {.low = low, .high = high};
    keys.K = keys.K_wide = keys_of(task, bf16, low, high, &keys.ldk);
    keys.ldk_wide = keys.ldk;
    if (both) keys.K_wide = keys_of(task, 0, low, high, &keys.ldk_wide);
    keys.V = rows_of(task, &values, p->shape.dim_v, w->compact_v, w->scratch.V, low, high, &keys.ldv);
    return keys;
}

attn_keys attn_task_keys_alone(const attn_task *task, int64_t low, int64_t high)
{
    attn_keys keys = {.low = low, .high = high};
    keys.K = keys.V = keys_of(task, attn_scores_bf16(task->walk), low, high, &keys.ldk);
    keys.ldv = keys.ldk;
    return keys;
}

attn_keys attn_task_tangents_of_keys(const attn_task *task, int64_t low, int64_t high)
{
    const attn_walk *w = task->walk;
    const attn_resolved *p = &w->problem;
    const int64_t D = w->problem.shape.dim_qk, Dv = w->problem.shape.dim_v;
    attn_keys keys = {.low = low, .high = high};
    const rows k = {task->args->tan_k, &p->at.tan_k, NULL, NULL, 0}, v = {task->args->tan_v, &p->at.tan_v, NULL, NULL, 0};
    if (p->has.tan_k) keys.K = rows_of(task, &k, D, w->compact_tan_k, w->scratch.Kd, low, high, &keys.ldk);
    if (p->has.tan_v) keys.V = rows_of(task, &v, Dv, w->compact_tan_v, w->scratch.Vd, low, high, &keys.ldv);
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
    if (attn_scores_bf16(w)) {
        w->kernel->bf16->pack_query(tile->width, tile->rows, p->shape.dim_qk, attn_query_row(task, task->args->q, q, tile->first),
                                    q->stride[2], Qt);
        return;
    }
    w->kernel->pack_query(tile->width, tile->rows, p->shape.dim_qk, attn_query_row(task, task->args->q, q, tile->first), q->dtype,
                          q->stride[2], scale, Qt);
    if (attn_is_additive(p)) w->kernel->additive.prepare_queries(tile->width, p->shape.dim_qk, attn_task_weights(task), Qt);
    if (attn_has_relative(p)) attn_relative_forget(task, tile);
    if (!w->relative.two) return;
    w->kernel->pack_query(tile->width, tile->rows, p->shape.dim_qk, attn_query_row(task, task->args->relative_v, q, tile->first),
                          q->dtype, q->stride[2], scale, (char *)Qt + w->relative.Qrt);
}

double attn_head_scale(const attn_walk *walk, const attn_args *args, int64_t h)
{
    double scale = walk->problem.score.scale;
    if (walk->problem.has.scale) scale = attn_real_at(args->scale, walk->compute, h);
    return scale / walk->problem.score.temperature;
}

double attn_task_scale(const attn_task *task) { return attn_head_scale(task->walk, task->args, task->h); }

const void *attn_head_weights(const attn_walk *walk, const attn_args *args, int64_t h)
{
    return (const char *)args->score_matrix +
           h * walk->problem.at.score_matrix.stride[1] * (int64_t)attn_dtype_bytes(walk->compute);
}

const void *attn_task_weights(const attn_task *task) { return attn_head_weights(task->walk, task->args, task->h); }

double attn_task_slope(const attn_task *task)
{
    const attn_resolved *p = &task->walk->problem;
    const int64_t *stride = p->at.alibi_slopes.stride;
    return attn_real_at(task->args->alibi_slopes, task->walk->compute, task->b * stride[0] + task->h * stride[1]);
}

double attn_task_sink(const attn_task *task)
{
    if (task->walk->problem.score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE) return 0;
    if (!task->walk->problem.has.sink) return -INFINITY;
    return attn_real_at(task->args->sink, task->walk->compute, task->h);
}
