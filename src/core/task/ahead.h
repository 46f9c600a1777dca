/* SPDX-License-Identifier: MIT
 *
 * ahead.h - what a worker's next task will read and write.  A short head is done before the hardware has seen a pattern, so its
 * rows would come from far while nothing else happens; instead the products of the head before ask for them on their way.
 */
#ifndef ATTN_TASK_AHEAD_H
#define ATTN_TASK_AHEAD_H

#include <stdint.h>

/* Rows of some tensors, in the order of need. */
typedef struct attn_ahead {
    struct {
        uintptr_t at; /* the next row: an integer, since it may run past the array */
        int64_t left; /* rows */
        int64_t ld;   /* elements */
    } part[4];
    int parts, now;
    int64_t size; /* bytes of an element */
} attn_ahead;

/* The next n rows, or fewer where a tensor ends; at the end of all *next and *ld stay as they are. */
static inline void attn_ahead_take(attn_ahead *ahead, int64_t n, const void **next, int64_t *ld)
{
    while (ahead->now < ahead->parts && ahead->part[ahead->now].left <= 0) ahead->now++;
    if (ahead->now == ahead->parts) return;
    *next = (const void *)ahead->part[ahead->now].at;
    *ld = ahead->part[ahead->now].ld;
    ahead->part[ahead->now].at += (uintptr_t)(n * *ld * ahead->size);
    ahead->part[ahead->now].left -= n;
}

#endif
