/* SPDX-License-Identifier: MIT
 * group.h - shared by both walks of decode (decode.c, in_order.c): rows of a key head, its keys piece by piece, and modifiers of
 * scores. */
#ifndef ATTN_WALK_DECODE_GROUP_H
#define ATTN_WALK_DECODE_GROUP_H

#include "../../task/task.h"
#include "decode.h"

typedef struct attn_decode_call {
    const attn_decode_walk *plan;
    const attn_walk *walk; /* that of the plan */
    const attn_args *args;
    char *workspace;
    attn_decode_shared shared;
} attn_decode_call;

/* K or V. */
typedef struct attn_decode_source {
    const void *base;
    const attn_layout *layout;
    int64_t dim, row, stride; /* bytes of a row, and from one to the next */
    int64_t piece;            /* rows of a piece */
    int64_t ld;               /* elements from one row of a piece to the next */
    int spread;               /* 1: a piece is on several pages */
    int gathers;              /* 1: of so few rows that some are copied together */
} attn_decode_source;

/* A key head of a batch entry, with the rows of its query heads. */
typedef struct attn_decode_group {
    const attn_decode_call *call;
    int64_t number;                       /* of batch entry and key head */
    int64_t heads, queries, rows;         /* queries: of this sequence, which may have fewer than others */
    int64_t max_rows;                     /* that any sequence may have */
    int64_t blocks, skipped;              /* of its keys; block n is number n + skipped on the grid, but block 0 */
    int64_t O_bytes;                      /* of a block */
    int64_t first_O, first_number;        /* bytes of O, and numbers of m and l, of the key heads before it */
    attn_task task[ATTN_MAX_DECODE_ROWS]; /* of each query head; the first is used for their keys */
    int64_t ldq, ldo, lds, size;          /* size: bytes of a number of the compute type */
    attn_decode_source keys, values;
} attn_decode_group;

typedef struct attn_decode_block {
    int64_t number, base;                    /* of the group's blocks; key `base` has the first score of a row */
    int64_t low, high;                       /* keys that any of the rows sees */
    void *Q, *S, *kept_scores, *scratch, *O; /* kept_scores: the scores, if keys were dropped */
    float *factors;                          /* of i8 keys, or of i8 values */
    char *integer_queries, *integer_weights; /* fixed-point rows; odd_queries, odd_weights: a bit for each row that has none */
    unsigned odd_queries, odd_weights;
    int32_t *sums; /* of products of limbs */
} attn_decode_block;

static inline char *attn_decode_after_workers(const attn_decode_call *c)
{
    return c->workspace + c->walk->workers * c->walk->worker_bytes;
}

/* Address of a number of the compute type. */
static inline void *attn_decode_at(const attn_decode_group *g, void *base, int64_t numbers)
{
    return (char *)base + numbers * g->size;
}

void attn_decode_group_at(attn_decode_group *g, const attn_decode_call *c, char *memory, int64_t number);

/* The results of blocks: O, rows of ldo; and m or l of a row, a number for each block. */
void *attn_decode_state(const attn_decode_group *g, int64_t block);
void *attn_decode_number(const attn_decode_group *g, int64_t offset, int64_t row);

/* Rows of a piece of keys or values. */
int64_t attn_decode_rows_of_piece(attn_dtype dtype, int64_t dim);

/* The rows that a worker reads next, from row j on; source NULL: unknown. */
typedef struct attn_decode_next {
    const attn_decode_source *source;
    int64_t j;
} attn_decode_next;

/* Calls run for each piece of rows low .. high-1.  fetch: bytes from it to the next piece, which is at `then` after the last one.
 */
typedef void attn_decode_piece(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *rows,
                               int64_t fetch, void *context);
void attn_decode_pieces(const attn_decode_group *g, const attn_decode_source *s, int64_t low, int64_t high, attn_decode_next then,
                        attn_decode_piece *run, void *context);

/* Rows of keys or values, as operands of a kernel. */
typedef struct attn_decode_rows {
    const void *at;
    attn_dtype dtype;
    int64_t ld, fetch;
} attn_decode_rows;
/* Prefetches the rows that lie `fetch` bytes after n rows (0: none), each line once if there are no gaps between them. */
static inline __attribute__((always_inline)) void attn_decode_prefetch(const attn_decode_source *s, int64_t n, const char *at,
                                                                       int64_t fetch)
{
    const int dense = s->stride == s->row;
    const int64_t rows = dense ? 1 : n, bytes = dense ? n * s->row : s->row;
    for (int64_t i = 0; fetch && i < rows; i++)
        for (int64_t byte = 0; byte < bytes; byte += ATTN_LINE) __builtin_prefetch(at + i * s->stride + fetch + byte, 0, 2);
}
/* n rows from j on, which are quantised: unpacked as in tiles. */
attn_decode_rows attn_decode_unpacked(const attn_decode_group *g, const attn_decode_source *s, int64_t j, int64_t n, const char *at,
                                      int64_t fetch);

/* Applies the modifiers to the scores of one row, over the block's keys.  Returns 1 if a key may have been dropped. */
int attn_decode_modify(const attn_decode_group *g, const attn_task *task, int64_t i, const attn_decode_block *b,
                       const float *factors, void *S);

/* In the order of tiles (in_order.c): runs part b->number of the keys, one block of tiles after the other; initialises a part that
 * no row sees; and merges the parts of row `row`, which is row i of a task (-1: past its sequence's end). */
void attn_decode_part_run(const attn_decode_group *g, attn_decode_block *b, attn_decode_next then);
void attn_decode_part_masked(const attn_decode_group *g, int64_t number);
void attn_decode_finish(const attn_decode_group *g, const attn_task *task, int64_t row, int64_t i);

#endif
