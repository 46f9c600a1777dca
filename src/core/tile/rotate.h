/* SPDX-License-Identifier: MIT
 * rotate.h - queries that are rotated by their positions while they are packed: the numbers are those of a rotated copy, which is
 * neither written nor read again. */
#ifndef ATTN_TILE_ROTATE_H
#define ATTN_TILE_ROTATE_H

#include "../task/task.h"

/* The angles of all queries.  They are computed once, for all heads. */
typedef struct attn_rotation {
    const attn_transfer_part *kernel;
    int64_t pairs, apart; /* of a query's channels, as attn_transfer_part.rotate takes them; at most ATTN_ROTATED_PAIRS */
    int64_t queries;      /* of an entry */
    const double *angles; /* [batch][queries][2][pairs]: cosines, then sines, of the queries that an entry has */
} attn_rotation;

/* 1 if the walk's tiles can: their scores, whose memory the rows pass through, are products of rows that are as large. */
int attn_tile_can_rotate(const attn_walk *walk);

/* The rows of a tile's queries, rotated and dense, in the memory of its scores.  Rows past an entry's queries are only copied. */
const void *attn_tile_rotate(const attn_task *task, const attn_tile *tile);

#endif
