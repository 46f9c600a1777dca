/* SPDX-License-Identifier: MIT
 *
 * walk.h - what the loops over tiles need to know: made once by the plan, read by every execution.
 * The scheduler cannot fail and never allocates; all that can go wrong was checked before.
 */
#ifndef ATTN_SCHED_WALK_H
#define ATTN_SCHED_WALK_H

#include "../kernels/kernel.h"

/*
 * One worker's memory, carved from the caller's workspace: offsets in bytes, all multiples of 64.
 *
 *      | Qt x group | Ot x group | m l x group | S | block_max | low high | scratch | K block | V block |
 *
 * The K and V blocks exist only where keys or values must be brought into compact rows of the compute type.
 */
typedef struct attn_scratch {
    int64_t Qt, Ot, m, l, S, block_max, low, high, scratch, K, V;
    int64_t Qt_bytes, Ot_bytes, lane_bytes; /* steps from one tile of the group to the next */
    int64_t bytes;                          /* of one worker */
} attn_scratch;

typedef struct attn_walk {
    attn_problem problem; /* resolved: no default types, no implied strides, no ATTN_BROADCAST */
    attn_dtype compute;
    double scale;
    const attn_fwd_kernel *kernel;
    int64_t tile_q;   /* lanes * vectors */
    int64_t block_kv; /* keys in a block; blocks lie on a grid that starts at key 0 */
    int64_t tiles;    /* query tiles of one head */
    int64_t group;    /* tiles of one task: they share each block of keys and values */
    int64_t tasks;
    int compact_k; /* copy a block into compact rows before use */
    int compact_v;
    attn_scratch scratch;
    int workers;
    attn_parallel_for *parallel_for; /* NULL: OpenMP, or the calling thread */
    void *parallel_context;
} attn_walk;

/* Fills tiles, group, tasks, compact_*, scratch and workers from the rest.  threads >= 1.  Returns 0 if a size overflows. */
int attn_walk_init(attn_walk *walk, int threads);

/* Forward attention.  workspace: walk->workers * walk->scratch.bytes bytes, 64-byte aligned. */
void attn_sched_forward(const attn_walk *walk, const attn_args *args, void *workspace);

/* Tiles of the whole problem at its full lengths (explicit offsets count as 0), and its visible (query, key) pairs. */
typedef struct attn_tile_count {
    int64_t total, visited, modified;
    double pairs;
} attn_tile_count;
void attn_walk_count(const attn_walk *walk, attn_tile_count *count);

#endif
