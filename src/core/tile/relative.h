/* SPDX-License-Identifier: MIT
 *
 * relative.h - relative keys and values inside the walk.  A tile of queries and a block of keys need the rows of a table between
 * their smallest and largest distance: a band.  Its product with the queries is the plain one, and its rows lie askew to the tile;
 * where all distances are beyond an end of the table, one row does for all keys.  Tables are spelled out in the compute type, with
 * their end rows repeated, so that a band never leaves them.
 */
#ifndef ATTN_TILE_RELATIVE_H
#define ATTN_TILE_RELATIVE_H

#include "steps.h"

enum { ATTN_KEPT_HEAD = 64 }; /* bytes before what is kept of a band, which say what it is */
enum { ATTN_SUMS_HEAD = 64 }; /* bytes before sums of the tables' gradients */

/* The problem that the walk solves: with u or v its queries are q + u.  Returns 0 if a size overflows. */
int attn_relative_problem(const attn_resolved *problem, attn_resolved *prepared);
/* Sizes the tables.  walk: with its tiles.  Returns 0 if a size overflows. */
int attn_relative_init(attn_walk *walk);

/* Spells tables and queries out.  *prepared are the walk's arguments; memory: walk->relative.bytes, 64-byte aligned. */
void attn_relative_begin(const attn_walk *walk, const attn_resolved *problem, const attn_args *args, void *memory,
                         attn_args *prepared);
/* The caller's gradients of q, u and v from those of q + u and q + v.  problem, args: the caller's. */
void attn_relative_finish(const attn_walk *walk, const attn_resolved *problem, const attn_args *args, const attn_args *prepared);

typedef enum attn_relative_side { ATTN_RELATIVE_KEYS, ATTN_RELATIVE_VALUES } attn_relative_side;

/* S[j][i] += x_i . row(distance), for the tile Xt of queries or of dO; block_max becomes that of S.  Bands of neighbouring keys
 * have rows in common, which are kept from one to the next, until the tile is forgotten: it has other queries then. */
void attn_relative_add(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side, const void *Xt,
                       void *S);
void attn_relative_forget(const attn_task *task, const attn_tile *tile);

/* Yt[c][i] += sum_j X[j][i] row(distance)[c].  careful: what X has 0 for is not read. */
void attn_relative_absorb(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side,
                          const void *X, int careful, void *Yt);

/* Backward: sums[row] += sum of X[j][i] times row i of `panels` over the pairs at its distance.  sums: for one table, with a head
 * of ATTN_SUMS_HEAD bytes that says which rows were met. */
void attn_relative_sum(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side, const void *X,
                       int careful, const void *panels, void *sums);

/* Backward: sums are 0 at first; a group's join those of their key head, and are 0 again. */
void attn_relative_sums_begin(const attn_walk *walk, void *sums);
void attn_relative_join(const attn_walk *walk, void *sums, void *to);

/* 1 if the tables of a key head are one for all its query heads. */
int attn_relative_shares(const attn_walk *walk);

/* Backward: sums of a key head's tables (of the head k of its group, or all of them), at place `place`. */
void *attn_relative_sums_at(const attn_walk *walk, char *shared, int64_t place, int64_t k);
void attn_relative_sums_clear(const attn_walk *walk, char *shared, int64_t place);
void attn_relative_totals_clear(const attn_walk *walk, char *shared);
/* The totals of table `table` take in place `place`, which has what key head `key_head` added. */
void attn_relative_totals_add(const attn_walk *walk, char *shared, int64_t table, int64_t place, int64_t key_head);
void attn_relative_totals_store(const attn_walk *walk, const attn_args *args, char *shared);

#endif
