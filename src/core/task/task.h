/* SPDX-License-Identifier: MIT
 * task.h - the context of one task: its head, its keys and values, its worker's memory. */
#ifndef ATTN_TASK_TASK_H
#define ATTN_TASK_TASK_H

#include "../visible/visible.h"
#include "next_task.h"
#include "schedule.h"
#include "tile.h"
#include "walk.h"

typedef struct attn_task {
    const attn_walk *walk;
    const attn_args *args;
    char *memory; /* of the worker */
    int64_t b, h, g;
    attn_visibility visibility;
    attn_next_task *next_task; /* NULL, or the prefetch queue of the worker's next task */
} attn_task;

/* The task of head number `head`, 0 .. batch * heads_q - 1. */
attn_task attn_task_of_head(const attn_walk *walk, const attn_args *args, char *memory, int64_t head);
/* The task of the first query head of key head number `key_head` of the batch; without query heads, only its keys may be used. */
attn_task attn_task_of_key_head(const attn_walk *walk, const attn_args *args, char *memory, int64_t key_head);

/* The worker's memory at a byte offset of walk->scratch. */
static inline void *attn_part(const attn_task *task, int64_t offset) { return task->memory + offset; }

/* Row t of the task's head in a tensor on the query side (q, o, lse, ...) or the key side (k, v, ...). */
char *attn_query_row(const attn_task *task, const void *base, const attn_layout *layout, int64_t t);
char *attn_key_row(const attn_task *task, const void *base, const attn_layout *layout, int64_t t);
/* Key row t, in its page if keys are paged, or row t of the key head's list; *count is reduced to the rows that follow
 * contiguously.
 */
const char *attn_key_run(const attn_task *task, const void *base, const attn_layout *layout, int64_t t, int64_t *count);
/* Keys that are quantised by channel, from key t on (of the key head's list, if it has one), at most `count`: rows of k_tail, or
 * keys first .. first+count-1 of a group. */
typedef struct attn_channel_run {
    const char *tail, *group; /* one of them; group: the place of its key 0 */
    int64_t first, count;
} attn_channel_run;
attn_channel_run attn_channels_at(const attn_task *task, int64_t t, int64_t count);
/* Keys low .. high-1 as rows of f32 from `to` on, `ld` apart. */
void attn_load_channels(const attn_task *task, int64_t low, int64_t high, void *to, int64_t ld);
/* Element (i, j) of the task's head in a mask, bias or weights tensor. */
char *attn_pair_at(const attn_task *task, const void *base, const attn_layout *layout, int64_t i, int64_t j);

/* If the next task is known, what to prefetch during a product over n keys; otherwise leaves *next and *ld unchanged. */
static inline void attn_task_prefetch(const attn_task *task, int64_t n, const void **next, int64_t *ld)
{
    if (task->next_task) attn_next_task_rows(task->next_task, n, next, ld);
}

/* Parameters of head h: the scale over the temperature; for additive scores, w in the kernel's layout. */
double attn_head_scale(const attn_walk *walk, const attn_args *args, int64_t h);
const void *attn_head_weights(const attn_walk *walk, const attn_args *args, int64_t h);

/* Parameters of this task's head. */
double attn_task_scale(const attn_task *task);
const void *attn_task_weights(const attn_task *task);
double attn_task_slope(const attn_task *task);
double attn_task_sink(const attn_task *task); /* -infinity if there is none */

#endif
