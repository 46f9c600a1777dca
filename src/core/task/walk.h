/* SPDX-License-Identifier: MIT
 *
 * walk.h - what the plans of all walks begin with: made once, read by every execution.  Walks cannot fail and never allocate; all
 * that can go wrong was checked before.
 */
#ifndef ATTN_TASK_WALK_H
#define ATTN_TASK_WALK_H

#include "../base/problem.h"
#include "../kernels/kernel.h"
#include "layout.h"

/* Which queries a tile of a head has. */
typedef enum attn_tiling {
    ATTN_TILING_GRID,     /* those of a grid: sums depend on which rows are in a tile */
    ATTN_TILING_EVEN,     /* as many as the others */
    ATTN_TILING_FOUR,     /* likewise, but for the last one, which has the few queries after whole vectors */
    ATTN_TILING_SEQUENCE, /* as many as the others of a sequence's own length (attn_tile_of) */
} attn_tiling;

/* Where bits are those of every instruction set: keys of a block, and bytes of the queries that a chain of sums goes over, which is
 * the tile of AVX2 and half that of AVX-512. */
enum { ATTN_BLOCK_OF_ALL = 128, ATTN_CHAIN_OF_ALL = 96 };

typedef struct attn_walk {
    attn_resolved problem; /* the first of them.  Resolved: no default types, no implied strides, no ATTN_BROADCAST */
    attn_dtype compute;
    attn_kernel kernel;

    int64_t tile_q;   /* the most queries of a tile */
    int64_t block_kv; /* keys in a block; blocks lie on a grid that starts at key 0 */
    int64_t tiles;    /* query tiles of one head */
    attn_tiling tiling;
    int64_t tasks;
    int workers;
    int64_t worker_bytes, shared_bytes; /* of the memory of each worker, and of what follows them */
    int64_t bytes;                      /* of workspace in all, without room to align */
    attn_parallel_for *parallel_for;    /* NULL: the library's own threads (pool.h) */
    void *parallel_context;
} attn_walk;

/* What a plan is made from. */
typedef struct attn_setting {
    const attn_resolved *problem; /* the caller's: of the sequences that are this walk's */
    const attn_kernel_row *row;
    int threads;      /* at least 1 */
    int saves_memory; /* to keep to workspace_limit */
    attn_parallel_for *parallel_for;
    void *parallel_context;
} attn_setting;

/* 1 if few queries and short heads are summed in the order of tiles. */
static inline int attn_in_order(const attn_resolved *p) { return p->invariant || p->reproducible; }

/* Keys of a block of tiles: what suits an instruction set best, or what all take. */
static inline int64_t attn_block_of_tiles(const attn_resolved *p, const attn_product_part *product)
{
    return p->reproducible ? ATTN_BLOCK_OF_ALL : product->block_kv(p->shape.dim_qk, p->shape.dim_v);
}

static inline int attn_is_additive(const attn_resolved *p) { return p->score.kind == ATTN_SCORE_ADDITIVE; }

/* 1 if scores, and in backward products of dO and V, are of bf16 as it is stored (attn_pairs_part). */
static inline int attn_scores_bf16(const attn_walk *walk) { return walk->kernel.pairs != NULL; }

/* 1 if a weight is a function of its own score alone. */
static inline int attn_is_elementwise(const attn_resolved *p) { return p->score.normaliser >= ATTN_NORMALISER_SIGMOID; }

static inline int attn_has_sink(const attn_resolved *p)
{
    return p->has.sink || p->score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE;
}

static inline int attn_drops_weights(const attn_resolved *p) { return p->dropout.probability > 0 || p->has.dropout_given; }

static inline int attn_has_relative(const attn_resolved *p) { return p->has.relative_keys || p->has.relative_values; }

/* What every walk begins with: *walk is zeros but for what the setting says. */
void attn_walk_begin(attn_walk *walk, const attn_setting *setting);
/* 1 if the work is so little that it is done sooner than threads are awake. */
int attn_is_serial(const attn_resolved *problem);
/* Sets walk->bytes: `before`, all workers and what they share; 0 where there are no tasks, unless it has work without them. Returns
 * 0 if that overflows. */
int attn_walk_add_bytes(attn_walk *walk, int64_t before, int works_without);

/* Tiles of the whole problem at its full lengths (explicit offsets count as 0), and its visible (query, key) pairs.  Exact up to
 * 2^18 query tiles a head; beyond, from as many of them, evenly spaced. */
typedef struct attn_tile_count {
    int64_t total, visited, modified;
    double pairs;
} attn_tile_count;
void attn_walk_count(const attn_walk *walk, attn_tile_count *count);

#endif
