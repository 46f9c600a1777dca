/* SPDX-License-Identifier: MIT
 * layout.h - how parts are laid out one after another in the caller's memory. */
#ifndef ATTN_TASK_LAYOUT_H
#define ATTN_TASK_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

/* A part of a layout: `count` times `each` elements of `size` bytes; its offset goes to *at. */
typedef struct attn_part_of {
    int64_t *at;
    int64_t count, each;
    size_t size;
} attn_part_of;
/* Places the parts one after another from *end on, each at a multiple of 64; returns 0 on overflow. */
int attn_place(const attn_part_of *parts, size_t n, int64_t *end);

/* Bytes of `count` times `each` elements, rounded up to a stride that keeps the alignment; -1 on overflow. */
int64_t attn_step_bytes(int64_t count, int64_t each, size_t size);

#endif
