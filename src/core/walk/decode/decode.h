/* SPDX-License-Identifier: MIT
 * decode.h - the plan of both walks for few queries (decode.c, in_order.c). */
#ifndef ATTN_WALK_DECODE_DECODE_H
#define ATTN_WALK_DECODE_DECODE_H

#include "../../task/walk.h"
#include "../../tile/tables.h"

/* The most queries of one key head that are decoded: those of all its query heads. */
enum { ATTN_MOST_DECODE_ROWS = 32 };

/* One worker's memory: offsets in bytes.  A part that a problem does not use has no bytes. */
typedef struct attn_decode_scratch {
    int64_t Q, Q_bytes; /* [rows][ldq] */
    int64_t S, kept;    /* [rows][block_kv + lanes]: scores, and before they became weights, where keys were dropped */
    int64_t O;          /* [2][ldo]: a row while blocks are merged */
    int64_t factors;    /* float[block_kv], where keys or values are i8 */
    int64_t query_digits, weight_digits; /* where i8 is multiplied as such: rows of digits, */
    int64_t digit_sums;                  /* and int32_t[rows][ATTN_DIGIT_SUMS(dim_v)] */
    int64_t block_O, row_factors;        /* in order: [rows][ldo] and [rows] of the tiles' block at hand */
    int64_t K, V;                        /* in order, where they are i8: [tile_kv][dim] */
} attn_decode_scratch;

/* What follows the workers' memory. */
typedef struct attn_decode_shared {
    int64_t O, O_bytes; /* [batch * heads_kv][blocks]: of each block; bytes of one */
    int64_t m, l;       /* [batch * heads_q * len_q][blocks] */
    int64_t open_tasks; /* [batch * heads_kv]: those that are not done */
} attn_decode_shared;

typedef struct attn_decode_walk {
    attn_walk walk;
    int64_t tile_kv;                  /* in the order of tiles: keys of their blocks, several of which are one here; else 0 */
    int64_t blocks;                   /* of len_kv */
    int64_t blocks_of_task;           /* one after the other */
    int by_block;                     /* tasks go from head to head over the same keys, which lie between those of other heads */
    int64_t ldq, ldo;                 /* row lengths of queries and of O */
    int integer_keys, integer_values; /* i8 is multiplied as whole numbers */
    int streams;                      /* keys and values are more than the caches hold from call to call */
    attn_tables tables;
    attn_decode_scratch scratch;
    attn_decode_shared shared;
} attn_decode_walk;

/* The length of a row of scores; no power of 2. */
static inline int64_t attn_decode_lds(const attn_decode_walk *plan)
{
    return (plan->tile_kv ? plan->tile_kv : plan->walk.block_kv) + plan->walk.kernel.decode->shape.lanes;
}

void attn_decode_run(const attn_walk *walk, const attn_args *args, char *workspace);

#endif
