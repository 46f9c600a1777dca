/* SPDX-License-Identifier: MIT
 *
 * next_task.h - prefetch of the rows that a worker's next task will read and write.  A short head ends before the hardware
 * prefetcher sees a pattern, so its rows would miss the cache with nothing to overlap; instead the products of the head before
 * prefetch them.
 */
#ifndef ATTN_TASK_NEXT_TASK_H
#define ATTN_TASK_NEXT_TASK_H

#include <stdint.h>

/* Rows of some tensors, in the order they are needed. */
typedef struct attn_next_task {
    struct {
        uintptr_t at; /* the next row: an integer, since it may run past the array */
        int64_t left; /* rows */
        int64_t ld;   /* elements */
    } part[4];
    int parts, now;
    int64_t size; /* bytes of an element */
} attn_next_task;

/* The next n rows, or fewer at the end of a tensor; after the last tensor *next and *ld are unchanged. */
static inline void attn_next_task_rows(attn_next_task *next_task, int64_t n, const void **next, int64_t *ld)
{
    while (next_task->now < next_task->parts && next_task->part[next_task->now].left <= 0) next_task->now++;
    if (next_task->now == next_task->parts) return;
    *next = (const void *)next_task->part[next_task->now].at;
    *ld = next_task->part[next_task->now].ld;
    next_task->part[next_task->now].at += (uintptr_t)(n * *ld * next_task->size);
    next_task->part[next_task->now].left -= n;
}

#endif
