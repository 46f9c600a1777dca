/* SPDX-License-Identifier: MIT
 *
 * tables.h - a bias by distance inside the walk.  Once per call the caller's table is expanded by distance, in the compute type: a
 * bias diagonal strip for each head, which extends far enough beyond the last distinct distance that a tile always finds a
 * contiguous run, whatever its distances.  In the walk's arguments, bias_table points to these strips.
 */
#ifndef ATTN_TILE_TABLES_H
#define ATTN_TILE_TABLES_H

#include "../base/checked.h"
#include "../task/task.h"
#include "attn/position.h"

typedef struct attn_tables {
    attn_distance_bias rule; /* resolved */
    int64_t count;           /* strips: one for each query head, or one in all */
    int64_t first, length;   /* the distance of a strip's first element, and its length */
    int64_t bytes;           /* at the start of the workspace */
} attn_tables;

/* Where in a strip a run of `count` distances begins; clamped at the ends, where all elements are equal. */
static inline int64_t attn_place_on_diagonals(const attn_tables *t, int64_t first, int64_t last, int64_t count)
{
    const int64_t distance = attn_add_saturate(first, -last);
    return attn_clamp(attn_add_saturate(distance, -t->first), 0, t->length - count);
}

/* Sizes the strips, which precede the workers' memory.  span: the most distances that a tile and a block of keys can span.  Returns
 * 0 if a size overflows. */
int attn_tables_init(attn_tables *tables, const attn_walk *walk, int64_t span);

/* Expands the tables.  *prepared: the walk's arguments; memory: tables->bytes, 64-byte aligned. */
void attn_tables_begin(const attn_tables *tables, const attn_walk *walk, const attn_args *args, void *memory, attn_args *prepared);

/* The head's strip from the tile's smallest distance on, for `count` distances (at most a tile and a block together): `first` is
 * the position of the first query, `last` the last key. */
const void *attn_diagonals_at(const attn_tables *tables, const attn_task *task, int64_t first, int64_t last, int64_t count);

/* 1 if a table contains an infinity or NaN, which must not be added to a masked score. */
int attn_tables_special(const attn_task *task);

#endif
