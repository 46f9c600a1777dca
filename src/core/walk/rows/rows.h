/* SPDX-License-Identifier: MIT
 *
 * rows.h - query heads that share a key head, as rows of one tile.  A tile has a row for each query of one head, so few queries
 * leave most of its lanes empty, and every head of the group walks over the same keys.  Here row i * heads + h of a key head is
 * query i of the h-th query head of its group: rows are gathered before the walk, and what it wrote is scattered after it.  What a
 * query sees is a matter of its position alone, so the walk is that of tiles, over a problem with one query head for each key head.
 */
#ifndef ATTN_WALK_ROWS_ROWS_H
#define ATTN_WALK_ROWS_ROWS_H

#include "../../task/walk.h"

typedef struct attn_rows_plan {
    int64_t heads;     /* of a group; 0: rows are queries, and nothing else here is used */
    int64_t Q, O, lse; /* offsets of bytes: the walk's q, o and lse, dense */
    int64_t bytes;
} attn_rows_plan;

/* The problem that the walk solves, and where its rows are.  Returns 0 if a size overflows. */
int attn_rows_problem(const attn_resolved *problem, attn_resolved *folded, attn_rows_plan *rows);

/* *prepared are the walk's arguments; memory: rows->bytes, 64-byte aligned.  problem: the caller's. */
void attn_rows_begin(const attn_rows_plan *rows, const attn_walk *walk, const attn_resolved *problem, const attn_args *args,
                     void *memory, attn_args *prepared);
void attn_rows_finish(const attn_rows_plan *rows, const attn_walk *walk, const attn_resolved *problem, const attn_args *args,
                      const attn_args *prepared);

#endif
