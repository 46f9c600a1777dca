/* SPDX-License-Identifier: MIT
 * decode.h - the plan of both walks for few queries (decode.c, in_order.c). */
#ifndef ATTN_WALK_DECODE_DECODE_H
#define ATTN_WALK_DECODE_DECODE_H

#include "../../base/names.h"
#include "../../task/walk.h"
#include "../../tile/tables.h"

/* The most rows of a key head that are decoded: the queries of all its query heads. */
enum { ATTN_MAX_DECODE_ROWS = 32 };

/* One worker's memory: offsets in bytes.  A part that a problem does not use takes no bytes. */
typedef struct attn_decode_scratch {
    int64_t Q, Q_bytes;     /* [rows][ldq] */
    int64_t S, kept_scores; /* [rows][block_kv + lanes]: scores, and those before they became weights, if keys were dropped */
    int64_t O;              /* [2][ldo]: a row while blocks are merged */
    int64_t factors;        /* float[block_kv], if keys or values are i8 */
    int64_t integer_queries, integer_weights; /* if i8 is multiplied as integers: fixed-point rows, */
    int64_t fixed_point_sums;                 /* and int32_t[rows][ATTN_FIXED_POINT_SUMS(dim_v)] */
    int64_t block_O, row_factors;             /* in order: [rows][ldo] and [rows] of the current block of tiles */
    int64_t K, V;                             /* a piece of them, unpacked, [piece][dim]; in order at most tile_kv of its rows */
    int64_t rows;                             /* a piece of keys or values, if pages have fewer rows */
} attn_decode_scratch;

/* Shared memory, after that of the workers. */
typedef struct attn_decode_shared {
    int64_t O, O_bytes; /* of each block of each key head; bytes of one */
    int64_t m, l;       /* [rows of a key head][its blocks], key head after key head */
    int64_t open_tasks; /* [batch * heads_kv]: tasks that are not done */
} attn_decode_shared;

typedef struct attn_decode_walk {
    attn_walk walk;
    int64_t tile_kv;                  /* in the order of tiles: keys of their blocks, several of which form one here; else 0 */
    int64_t blocks;                   /* of len_kv */
    int64_t blocks_of_task;           /* consecutive ones */
    int by_block;                     /* 1: consecutive tasks have the same block of different heads, whose keys are interleaved */
    int64_t ldq, ldo;                 /* row lengths of queries and of O */
    int integer_keys, integer_values; /* i8, and keys of blocks, are multiplied as integers */
    int streams;                      /* keys and values exceed what the caches hold from call to call */
    attn_tables tables;
    attn_decode_scratch scratch;
    attn_decode_shared shared;
} attn_decode_walk;

/* Whether the kernels do not read keys and values of the format in place. */
static inline int attn_decode_unpacks(attn_dtype dtype) { return attn_is_quantised(dtype) && dtype != ATTN_I8; }

/* The length of a row of scores; not a power of 2. */
static inline int64_t attn_decode_lds(const attn_decode_walk *plan)
{
    return (plan->tile_kv ? plan->tile_kv : plan->walk.block_kv) + plan->walk.kernel.decode->shape.lanes;
}

/* Lays out the shared memory for so many blocks of so many rows, of all key heads; *bytes: its end.  Returns 0 if that overflows.
 */
int attn_decode_share(const attn_decode_walk *plan, int64_t blocks, int64_t rows, attn_decode_shared *shared, int64_t *bytes);

void attn_decode_run(const attn_walk *walk, const attn_args *args, char *workspace);

#endif
