/* SPDX-License-Identifier: MIT
 * task.c - addresses of a task's rows, and the parameters of its head. */
#include "task.h"

#include <math.h>

#include "../base/names.h"

static attn_task task_of(const attn_walk *walk, const attn_args *args, char *memory, int64_t b, int64_t h, int64_t g)
{
    attn_task task;
    task.walk = walk;
    task.args = args;
    task.memory = memory;
    task.b = b;
    task.h = h;
    task.g = g;
    attn_visibility_of(&walk->problem, args, b, h, &task.visibility);
    task.next_task = NULL;
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

/* Unsigned, since a packed tensor without elements may have any strides. */
static uintptr_t times(int64_t n, int64_t stride) { return (uintptr_t)n * (uintptr_t)stride; }

/* In integers, since a tensor without elements may be NULL. */
static char *at(const void *base, const attn_layout *layout, uintptr_t elements)
{
    return (char *)((uintptr_t)base + elements * attn_dtype_bytes(layout->dtype));
}

char *attn_query_row(const attn_task *task, const void *base, const attn_layout *layout, int64_t t)
{
    const int64_t *stride = layout->stride;
    const attn_resolved *p = &task->walk->problem;
    if (p->rows_of_query && task->args->schedule) { /* rows of the sequences that this walk has, key head after key head */
        const int64_t before = task->args->schedule->entries[task->b].before;
        return at(base, layout, times(before + task->h * task->visibility.len_q + t, stride[2]));
    }
    if (attn_is_packed(p) && !p->rows_of_query)
        return at(base, layout, times(task->h, stride[1]) + times(task->visibility.first_q + t, stride[2]));
    return at(base, layout, times(task->b, stride[0]) + times(task->h, stride[1]) + times(t, stride[2]));
}

char *attn_key_row(const attn_task *task, const void *base, const attn_layout *layout, int64_t t)
{
    const int64_t *stride = layout->stride;
    if (attn_keys_are_packed(&task->walk->problem))
        return at(base, layout, times(task->g, stride[1]) + times(task->visibility.first_kv + t, stride[2]));
    return at(base, layout, times(task->b, stride[0]) + times(task->g, stride[1]) + times(t, stride[2]));
}

char *attn_pair_at(const attn_task *task, const void *base, const attn_layout *layout, int64_t i, int64_t j)
{
    const int64_t *stride = layout->stride;
    return at(base, layout, times(task->b, stride[0]) + times(task->h, stride[1]) + times(i, stride[2]) + times(j, stride[3]));
}

const char *attn_key_run(const attn_task *task, const void *base, const attn_layout *layout, int64_t t, int64_t *count)
{
    const attn_resolved *p = &task->walk->problem;
    const attn_paging *paging = &p->paging;
    if (task->visibility.list) t = attn_listed_key(&task->visibility, t, count);
    if (!attn_is_paged(p)) return attn_key_row(task, base, layout, t);
    int64_t number = t / paging->page_size, into = t % paging->page_size;
    int64_t page = attn_page_of(p, task->args, task->b, number);
    *count = attn_min(*count, paging->page_size - into);
    return at(base, layout, times(page, layout->stride[0]) + times(task->g, layout->stride[1]) + times(into, layout->stride[2]));
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
