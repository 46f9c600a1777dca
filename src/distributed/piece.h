/* SPDX-License-Identifier: MIT
 * piece.h - what one call of the library computes of a cell, and the tensors of that call. */
#ifndef ATTN_DISTRIBUTED_PIECE_H
#define ATTN_DISTRIBUTED_PIECE_H

#include <string.h>

#include "../common/sizes.h"
#include "cell.h"
#include "memory.h"

/* What one call of the library computes of a cell: all of it, or the tokens of a packed sequence. */
typedef struct attn_piece {
    int64_t entry;                            /* of the batch */
    int64_t first_q, queries, first_kv, keys; /* tokens of the whole */
    int64_t origin_q, origin_kv;              /* of these in their sequence */
} attn_piece;

/* Moves to the next piece of a cell; *p begins with entry -1.  Returns 0 behind the last one. */
int attn_piece_next(const attn_cells *cells, const attn_cell *cell, attn_piece *p);
/* From the first band of a cell to the last but one, without packed sequences: those between are alike, and may be many. */
void attn_piece_skip(const attn_cells *cells, const attn_cell *cell, attn_piece *p);

typedef struct attn_piece_call {
    attn_problem problem;
    attn_tensors tensors;
    attn_call call;
    attn_origin origin;
} attn_piece_call;

/* away: keys are in the cell's message, which is not known yet for a plan.  lengths: space for 2 batch numbers, NULL for a plan. */
void attn_call_make(const attn_cells *cells, const attn_tensors *mine, const attn_cell *cell, const attn_piece *p, int away,
                    int64_t *lengths, attn_piece_call *call);

/* Of so many tokens of all heads and entries. */
static inline size_t attn_tokens_bytes(const attn_bound *b, size_t size, int64_t tokens)
{
    const int64_t sizes[] = {b->shape[0], b->shape[1], b->width, tokens};
    return (size_t)sizes_product(sizes, 4) * size;
}

static inline attn_spread attn_spread_of(attn_node_kind kind)
{
    return kind == ATTN_NODE_ROW ? ATTN_SPREAD_QUERIES : kind == ATTN_NODE_COLUMN ? ATTN_SPREAD_KEYS : ATTN_SPREAD_SAME;
}

static inline attn_input *attn_slot_in(attn_tensors *t, const attn_bound *b)
{
    return (attn_input *)(void *)((char *)t + b->offset);
}

#endif
