/* SPDX-License-Identifier: MIT
 *
 * tables.h - a bias by distance inside the walk.  Once for each call the caller's table is spelled out by distance, in the compute
 * type: a strip for each head, which reaches so far beyond the last distance that has a number of its own that a tile always finds
 * a run of it, whatever the tile's distances are.  In the walk's arguments bias_table is these strips.
 */
#ifndef ATTN_TILE_TABLES_H
#define ATTN_TILE_TABLES_H

#include "steps.h"

/* Sizes the strips, which stand before the workers' memory.  span: distances that a tile and a block of keys can have between
 * them.  Returns 0 if a size overflows. */
int attn_tables_init(attn_tables *tables, const attn_walk *walk, int64_t span);

/* Spells the tables out.  *prepared are the walk's arguments; memory: tables->bytes, 64-byte aligned. */
void attn_tables_begin(const attn_tables *tables, const attn_walk *walk, const attn_args *args, void *memory, attn_args *prepared);

/* The head's strip from the tile's smallest distance on, for `count` distances (at most a tile and a block together): `first` is
 * the position of the first query, `last` the last key. */
const void *attn_strip_at(const attn_tables *tables, const attn_task *task, int64_t first, int64_t last, int64_t count);

/* 1 if a table holds an infinity or NaN, which must not meet a dropped score. */
int attn_tables_special(const attn_task *task);

/* Backward, for the gradient: the sums of a head by distance are 0 at first; those of a worker's tile are cleared, take in dS of
 * its blocks, and join them. */
void attn_table_sums_begin(const attn_walk *walk, int64_t head, char *shared);
void attn_table_sums_clear(const attn_task *task, int64_t place);
void attn_table_sums_add(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const void *dS);
void attn_table_sums_keep(const attn_task *task, int64_t place, char *shared);

/* The gradient of every table, from the sums of all heads in order. */
void attn_tables_finish(const attn_walk *walk, const attn_args *args, char *shared);

#endif
