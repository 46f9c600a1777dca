/* SPDX-License-Identifier: MIT
 *
 * tables.h - a bias by distance inside the walk.  Once for each call the caller's table is spelled out by distance, in the compute
 * type: a strip for each head, which reaches so far beyond the last distance that has a number of its own that a tile always finds
 * a run of it, whatever the tile's distances are.  In the walk's arguments bias_table is these strips.
 */
#ifndef ATTN_TILE_TABLES_H
#define ATTN_TILE_TABLES_H

#include "../base/checked.h"
#include "../task/task.h"
#include "attn/position.h"

typedef struct attn_tables {
    attn_distance_bias rule; /* resolved */
    int64_t count;           /* strips: one for each query head, or one */
    int64_t first, length;   /* the distance of a strip's first number, and how many it has */
    int64_t bytes;           /* of the workspace, before all else */
} attn_tables;

/* Where in a strip a run of `count` distances begins: where it would pass an end, all are alike. */
static inline int64_t attn_place_on_diagonals(const attn_tables *t, int64_t first, int64_t last, int64_t count)
{
    const int64_t distance = attn_add_saturate(first, -last);
    return attn_clamp(attn_add_saturate(distance, -t->first), 0, t->length - count);
}

/* Sizes the strips, which stand before the workers' memory.  span: distances that a tile and a block of keys can have between
 * them.  Returns 0 if a size overflows. */
int attn_tables_init(attn_tables *tables, const attn_walk *walk, int64_t span);

/* Spells the tables out.  *prepared are the walk's arguments; memory: tables->bytes, 64-byte aligned. */
void attn_tables_begin(const attn_tables *tables, const attn_walk *walk, const attn_args *args, void *memory, attn_args *prepared);

/* The head's strip from the tile's smallest distance on, for `count` distances (at most a tile and a block together): `first` is
 * the position of the first query, `last` the last key. */
const void *attn_diagonals_at(const attn_tables *tables, const attn_task *task, int64_t first, int64_t last, int64_t count);

/* 1 if a table holds an infinity or NaN, which must not meet a dropped score. */
int attn_tables_special(const attn_task *task);

#endif
