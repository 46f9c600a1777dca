/* SPDX-License-Identifier: MIT
 *
 * small.h - short heads: a task has one head, and keeps all its scores until it is done.  For sequences with no mask but a causal
 * one.  Three walks, and their shared functions:
 *
 *      tiles.c        forward without a mask: queries lie in the lanes, a tile at a time, and O is computed in rows
 *      rows.c         forward with a causal mask: queries stay rows and keys lie in the lanes (kernels/part/small.h tells why)
 *      backward.c     likewise
 */
#ifndef ATTN_WALK_SMALL_SMALL_H
#define ATTN_WALK_SMALL_SMALL_H

#include "../../base/names.h"
#include "../../task/task.h"
#include "../walks.h"

/* Scores of a head with this many queries and keys stay in a level 2 cache with its rows (measured in lab/forward,
 * lab/backward). */
enum { ATTN_SMALL_TOKENS = 256 };

/* The limits of attn_walk_type, for keys in the lanes. */
int attn_small_limits(const attn_resolved *problem, const attn_kernel_row *row, attn_walk_limits *limits);

/* The most queries and keys of a sequence. */
int64_t attn_small_queries(const attn_walk *walk);
int64_t attn_small_keys(const attn_walk *walk);

/* Queries of a task of a head: forward, a head is split into tasks only if heads are few, since each task packs the keys again.
 * Results do not depend on it. */
int64_t attn_small_queries_of_task(const attn_walk *walk, int64_t heads, int threads);

/* Row length of a head's scores. */
int64_t attn_small_row(const attn_walk *walk);

/* Workers and bytes of workspace, from tasks.  Returns 0 if that overflows. */
int attn_small_finish(attn_walk *walk, int threads);

/* How a schedule cuts the sequences of both walks of forward: not at all. */
extern const attn_walk_cut attn_small_cut;

/* A tile of keys; vectors are distributed evenly over tiles. */
typedef struct attn_key_tile {
    int64_t first, rows;
    int width;
} attn_key_tile;

int64_t attn_key_tiles(const attn_walk *walk, int64_t len_kv);
attn_key_tile attn_key_tile_at(const attn_walk *walk, int64_t len_kv, int64_t t);

/* How many of the first keys query 0 sees; all if nothing is masked. */
int64_t attn_seen_by_first(const attn_task *task);

/* Keys and values of a head: in place, or gathered from their pages into the worker's memory at K and V. */
typedef struct attn_small_sources {
    const void *K, *V;
    int64_t ldk, ldv;
} attn_small_sources;

attn_small_sources attn_small_sources_of(const attn_task *task, int64_t K, int64_t V);

static inline void *attn_small_element(const attn_walk *walk, const void *base, int64_t n)
{
    return (void *)((uintptr_t)base + (uintptr_t)(n * (int64_t)attn_dtype_bytes(walk->compute)));
}

/* What head `head`, most likely this worker's next, reads and writes. */
attn_prefetch attn_small_prefetch(const attn_task *task, int64_t head);

/* NaN times a weight of 0 is NaN: a result that is not finite is recomputed from only what each row sees.  Returns 1 if so. */
int attn_small_multiply(const attn_walk *walk, const attn_short_product *product, attn_prefetch *prefetch);

/* Clears rows whose scores are all -infinity, even if a value is NaN. */
void attn_small_clear_empty(const attn_walk *walk, int64_t rows, const void *factors, char *o);

#endif
