/* SPDX-License-Identifier: MIT
 * runs.h - which keys a tile visits: runs of keys that any of its queries may see, by intervals and block masks. */
#ifndef ATTN_TILE_RUNS_H
#define ATTN_TILE_RUNS_H

#include "../task/task.h"

static inline int attn_has_blocks(const attn_task *task)
{
    return task->walk->problem.has.block_mask || (task->walk->problem.has.block_starts && !task->visibility.list);
}

/* The first run of keys within low .. high-1 that the tile has to visit; returns 0 if there is none.  Keys outside runs are seen by
 * none of its queries; within a run there may be short gaps. */
int attn_task_run(const attn_task *task, const attn_tile *tile, int64_t low, int64_t high, attn_interval *run);

/* The first key from `key` on that is not in the gap between a tile's two intervals. */
static inline int64_t attn_beyond_gap(const attn_tile_visibility *visible, int64_t key)
{
    return key >= visible->any.global.high && key < visible->any.local.low ? visible->any.local.low : key;
}

/*
 * The next run from run->high on, within a block of the grid and below `high`; all: every key is visited.  To iterate over a tile:
 *
 *      for (attn_interval run = {low, low}; attn_task_next(task, tile, all, high, &run);)
 */
int attn_task_next(const attn_task *task, const attn_tile *tile, int all, int64_t high, attn_interval *run);

/* The block mask as a byte for each pair of the tile and these keys: bytes[i*n + key - low], n = high - low.  Returns 1, with
 * nothing written, if every pair is kept. */
int attn_blocks_expand(const attn_task *task, const attn_tile *tile, int64_t low, int64_t high, unsigned char *bytes);

#endif
