/* SPDX-License-Identifier: MIT
 * group.h - what both walks of decode share (decode.c, in_order.c): rows of a key head, its keys piece by piece, and what changes
 * scores. */
#ifndef ATTN_WALK_DECODE_GROUP_H
#define ATTN_WALK_DECODE_GROUP_H

#include "../../task/task.h"
#include "decode.h"

typedef struct attn_decode_call {
    const attn_decode_walk *plan;
    const attn_walk *walk; /* of it */
    const attn_args *args;
    char *workspace;
} attn_decode_call;

/* K or V. */
typedef struct attn_decode_source {
    const void *base;
    const attn_layout *layout;
    int64_t dim, row, stride; /* bytes of a row, and from one to the next */
    int64_t piece;            /* rows of a piece */
} attn_decode_source;

/* A key head of a batch entry, with the rows of its query heads. */
typedef struct attn_decode_group {
    const attn_decode_call *call;
    int64_t number;                        /* batch entry and key head */
    int64_t heads, queries, rows;          /* queries: of this sequence, which may have fewer than others */
    int64_t most_rows;                     /* that any sequence may have */
    attn_task task[ATTN_MOST_DECODE_ROWS]; /* of each query head; the first is that of their keys */
    int64_t ldq, ldo, lds, size;           /* size: bytes of a number of the compute type */
    attn_decode_source keys, values;
} attn_decode_group;

typedef struct attn_decode_block {
    int64_t number, base;               /* key `base` has the first score of a row */
    int64_t low, high;                  /* keys that one of the rows sees */
    void *Q, *S, *kept, *scratch, *O;   /* kept: the scores, where keys were dropped */
    float *factors;                     /* of keys that are whole numbers, or of values */
    char *query_digits, *weight_digits; /* rows of digits, of which some are no such numbers: a bit for each */
    unsigned odd_queries, odd_weights;
    int32_t *sums; /* of products of digits */
} attn_decode_block;

static inline char *attn_decode_behind_workers(const attn_decode_call *c)
{
    return c->workspace + c->walk->workers * c->walk->worker_bytes;
}

/* Numbers of the compute type. */
static inline void *attn_decode_at(const attn_decode_group *g, void *base, int64_t numbers)
{
    return (char *)base + numbers * g->size;
}

void attn_decode_group_at(attn_decode_group *g, const attn_decode_call *c, char *memory, int64_t number);

/* What blocks leave behind: O, rows of ldo; and m or l of a row, a number for each block. */
void *attn_decode_state(const attn_decode_group *g, int64_t block);
void *attn_decode_number(const attn_decode_group *g, int64_t offset, int64_t row);

/* Where key or value j lies. */
const char *attn_decode_row(const attn_decode_group *g, const attn_decode_source *s, int64_t j);

/* For each piece of rows low .. high-1: run(...) with what comes next, which is `then` after the last piece. */
typedef void attn_decode_piece(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *rows,
                               int64_t fetch, void *context);
void attn_decode_pieces(const attn_decode_group *g, const attn_decode_source *s, int64_t low, int64_t high, const char *then,
                        attn_decode_piece *run, void *context);

/* What changes the scores of one row, over the block's keys.  Returns 1 if one may have been dropped. */
int attn_decode_modify(const attn_decode_group *g, const attn_task *task, int64_t i, const attn_decode_block *b,
                       const float *factors, void *S);

/* In the order of tiles (in_order.c): part number b->number of the keys, blocks of tiles one after the other; one that no row sees;
 * and the results of all parts, of row i of a task or of a row number -1, which is after its sequence's end. */
void attn_decode_part_run(const attn_decode_group *g, attn_decode_block *b, const char *then);
void attn_decode_part_unseen(const attn_decode_group *g, int64_t number);
void attn_decode_finish(const attn_decode_group *g, const attn_task *task, int64_t row, int64_t i);

#endif
