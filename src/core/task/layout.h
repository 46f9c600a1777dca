/* SPDX-License-Identifier: MIT
 * layout.h - how parts lie one after the other in memory of the caller. */
#ifndef ATTN_TASK_LAYOUT_H
#define ATTN_TASK_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* A part of a layout: `count` times `each` elements of `size` bytes, at an offset that goes to *at. */
typedef struct attn_part_of {
    int64_t *at;
    int64_t count, each;
    size_t size;
} attn_part_of;
/* Lays the parts one after the other from *end on, each on a multiple of 64; returns 0 if that overflows. */
int attn_place(const attn_part_of *parts, size_t n, int64_t *end);

/* Bytes of `count` times `each` elements, rounded up to a step that keeps its alignment; -1 if that overflows. */
int64_t attn_step_bytes(int64_t count, int64_t each, size_t size);

#endif
