/* SPDX-License-Identifier: MIT
 *
 * walk.h - the common head of the plans of all walks: made once, read by every execution.  Walks cannot fail and never allocate;
 * everything that can go wrong was checked before.
 */
#ifndef ATTN_TASK_WALK_H
#define ATTN_TASK_WALK_H

#include "../base/problem.h"
#include "../kernels/kernel.h"
#include "layout.h"

/* How the queries of a head are divided into tiles. */
typedef enum attn_tiling {
    ATTN_TILING_GRID,     /* on a fixed grid: sums depend on which rows are in a tile */
    ATTN_TILING_EVEN,     /* evenly */
    ATTN_TILING_FOUR,     /* evenly, except the last tile, which has the few queries after whole vectors */
    ATTN_TILING_SEQUENCE, /* evenly over each sequence's own length (attn_tile_of) */
} attn_tiling;

/* For the same bits on every instruction set: keys of a block, and bytes of the queries in one chain of sums, which is the tile of
 * AVX2 and half that of AVX-512. */
enum { ATTN_BLOCK_OF_ALL = 128, ATTN_CHAIN_OF_ALL = 96 };

typedef struct attn_walk {
    attn_resolved problem; /* the first field.  Resolved: no default types, no implied strides, no ATTN_BROADCAST */
    attn_dtype compute;
    attn_kernel kernel;

    int64_t tile_q;   /* the most queries of a tile */
    int64_t block_kv; /* keys in a block; blocks lie on a grid that starts at key 0 */
    int64_t tiles;    /* query tiles of one head */
    attn_tiling tiling;
    int64_t tasks;
    int workers;
    int64_t worker_bytes, shared_bytes; /* of each worker's memory, and of the shared memory after them */
    int64_t bytes;                      /* of the whole workspace, without alignment */
    attn_parallel_for *parallel_for;    /* NULL: the library's own threads (pool.h) */
    void *parallel_context;
} attn_walk;

/* The input from which a plan is made. */
typedef struct attn_setting {
    const attn_resolved *problem; /* the caller's, for the sequences of this walk */
    const attn_kernel_row *row;
    int threads;      /* at least 1 */
    int saves_memory; /* to stay within workspace_limit */
    attn_parallel_for *parallel_for;
    void *parallel_context;
} attn_setting;

/* 1 if few queries and short heads must be summed in the order of tiles. */
static inline int attn_in_order(const attn_resolved *p) { return p->invariant || p->reproducible; }

/* Keys per block: the best for the instruction set, or the common size. */
static inline int64_t attn_block_of_tiles(const attn_resolved *p, const attn_product_part *product)
{
    return p->reproducible ? ATTN_BLOCK_OF_ALL : product->block_kv(p->shape.dim_qk, p->shape.dim_v);
}

static inline int attn_is_additive(const attn_resolved *p) { return p->score.kind == ATTN_SCORE_ADDITIVE; }

/* 1 if scores, and in backward the products of dO and V, use bf16 as stored (attn_pairs_part). */
static inline int attn_scores_bf16(const attn_walk *walk) { return walk->kernel.pairs != NULL; }

/* 1 if a weight is a function of its own score alone. */
static inline int attn_is_elementwise(const attn_resolved *p) { return p->score.normaliser >= ATTN_NORMALISER_SIGMOID; }

static inline int attn_has_sink(const attn_resolved *p)
{
    return p->has.sink || p->score.normaliser == ATTN_NORMALISER_SOFTMAX_ONE;
}

static inline int attn_drops_weights(const attn_resolved *p) { return p->dropout.probability > 0 || p->has.dropout_given; }

static inline int attn_has_relative(const attn_resolved *p) { return p->has.relative_keys || p->has.relative_values; }

/* Initialises the common head: *walk is zeros except for what the setting gives. */
void attn_walk_begin(attn_walk *walk, const attn_setting *setting);
/* 1 if the work takes less time than waking threads. */
int attn_is_serial(const attn_resolved *problem);
/* Sets walk->bytes: `before`, all workers and what they share; 0 without tasks, unless works_without.  Returns 0 on overflow. */
int attn_walk_add_bytes(attn_walk *walk, int64_t before, int works_without);

/* Tiles of the whole problem at its full lengths (explicit offsets count as 0), and its visible (query, key) pairs.  Exact up to
 * 2^18 query tiles per head; beyond that, estimated from 2^18 evenly spaced tiles. */
typedef struct attn_tile_count {
    int64_t total, visited, modified;
    double pairs;
} attn_tile_count;
void attn_walk_count(const attn_walk *walk, attn_tile_count *count);

#endif
