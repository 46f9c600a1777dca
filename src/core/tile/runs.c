/* SPDX-License-Identifier: MIT
 * runs.c - runs of keys that a tile visits.  A gap costs a comparison or a search in a list, not a pass over its keys. */
#include "runs.h"

#include <string.h>

#include "../base/names.h"

/* Gaps in a block mask up to this length are visited rather than skipped, since every run has overhead. */
enum { SHORT_GAP = 16 };

/* ---- block masks: block k of keys, in row `number` of blocks ---- */

static int64_t column_at(const attn_task *task, int64_t entry)
{
    return attn_index_at(task->args->block_index, task->walk->problem.at.block_index.dtype, entry);
}

/* The first kept block of a row from k on; `end` if there is none before it. */
static int64_t next_in_row(const attn_task *task, int64_t number, int64_t k, int64_t end)
{
    const attn_resolved *p = &task->walk->problem;
    if (p->has.block_starts) {
        const attn_dtype dtype = p->at.block_starts.dtype;
        if (p->mask.block_heads) number += (task->b * p->shape.heads_kv + task->g) * attn_lists_of_head(p);
        int64_t low = attn_index_at(task->args->block_starts, dtype, number);
        int64_t last = attn_index_at(task->args->block_starts, dtype, number + 1), high = last;
        while (low < high) {
            int64_t middle = low + (high - low) / 2;
            if (column_at(task, middle) < k) low = middle + 1;
            else high = middle;
        }
        return low < last ? attn_min(column_at(task, low), end) : end;
    }
    const char *row = attn_pair_at(task, task->args->block_mask, &p->at.block_mask, number, 0);
    while (k < end && !row[k * p->at.block_mask.stride[3]]) k++;
    return k;
}

static int row_keeps(const attn_task *task, int64_t number, int64_t k) { return next_in_row(task, number, k, k + 1) == k; }

/* The first block from k on that some row of the tile keeps; `end` if there is none before it. */
static int64_t next_of_tile(const attn_task *task, const attn_tile *tile, int64_t k, int64_t end)
{
    const int64_t block_q = task->walk->problem.mask.block_q, last = (tile->first + tile->rows - 1) / block_q;
    for (int64_t number = tile->first / block_q; number <= last && k < end; number++) end = next_in_row(task, number, k, end);
    return end;
}

/* Narrows low .. high-1 to its first run of kept blocks; returns 0 if there is none. */
static int run_of_blocks(const attn_task *task, const attn_tile *tile, attn_interval *run)
{
    const int64_t size = task->walk->problem.mask.block_kv, end = attn_ceil_div(run->high, size);
    int64_t k = next_of_tile(task, tile, run->low / size, end);
    if (k >= end) return 0;
    run->low = attn_max(run->low, k * size);
    for (;;) {
        int64_t next = next_of_tile(task, tile, k + 1, end);
        if (next >= end || (next - k - 1) * size > SHORT_GAP) break;
        k = next;
    }
    run->high = attn_min(run->high, (k + 1) * size);
    return 1;
}

int attn_blocks_expand(const attn_task *task, const attn_tile *tile, int64_t low, int64_t high, unsigned char *bytes)
{
    const attn_mask *m = &task->walk->problem.mask;
    const int64_t n = high - low, end = tile->first + tile->rows;
    int all = 1;
    for (int64_t i = tile->first; i < end && all; i = (i / m->block_q + 1) * m->block_q)
        for (int64_t j = low; j < high && all; j = (j / m->block_kv + 1) * m->block_kv)
            all = row_keeps(task, i / m->block_q, j / m->block_kv);
    if (all) return 1;
    for (int64_t i = tile->first; i < end; i++) {
        unsigned char *row = bytes + (i - tile->first) * n;
        if (i > tile->first && i % m->block_q != 0) { /* same as the row before */
            memcpy(row, row - n, (size_t)n);
            continue;
        }
        for (int64_t j = low; j < high;) {
            int64_t block = j / m->block_kv, next = attn_min(high, (block + 1) * m->block_kv);
            memset(row + j - low, row_keeps(task, i / m->block_q, block), (size_t)(next - j));
            j = next;
        }
    }
    return 0;
}

/* ---- intervals ---- */

/* Narrows low .. high-1 to the keys of one interval, or of both if they touch; returns 0 if there is none. */
static int run_of_tile(const attn_tile_visibility *visible, attn_interval *run)
{
    const attn_interval *local = &visible->any.local, *global = &visible->any.global;
    const int64_t high = run->high;
    if (run->low < global->high && global->low < high) {
        run->low = attn_max(run->low, global->low);
        run->high = attn_min(high, global->high);
        if (local->low <= run->high) run->high = attn_max(run->high, attn_min(high, local->high));
        return 1;
    }
    run->low = attn_max(run->low, local->low);
    run->high = attn_min(high, local->high);
    return run->low < run->high;
}

int attn_task_run(const attn_task *task, const attn_tile *tile, int64_t low, int64_t high, attn_interval *run)
{
    while (low < high) {
        run->low = low;
        run->high = high;
        if (!run_of_tile(&tile->visible, run)) return 0;
        low = run->high;
        if (attn_tile_sees_none(&task->visibility, &tile->visible, tile->first, tile->rows, run->low, run->high)) continue;
        if (!attn_has_blocks(task) || run_of_blocks(task, tile, run)) return 1;
    }
    return 0;
}

int attn_task_next(const attn_task *task, const attn_tile *tile, int all, int64_t high, attn_interval *run)
{
    for (int64_t j = run->high, end; j < high; j = end) {
        if (!all) j = attn_beyond_gap(&tile->visible, j);
        if (j >= high) break;
        end = attn_block_end(task->walk, j, high);
        if (all) {
            run->low = j;
            run->high = end;
            return 1;
        }
        if (attn_task_run(task, tile, j, end, run)) return 1;
    }
    return 0;
}
