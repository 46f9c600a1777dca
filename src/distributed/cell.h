/* SPDX-License-Identifier: MIT
 *
 * cell.h - cells: a part of the queries with a part of the keys, as a call of the library, and how the results of two are combined.
 * Results lie in nodes: a row node has those of a part of queries (o and lse, grad_q, tangents), a column node those of a part of
 * keys (grad_k, grad_v), and a shared node those of which there is one for all (gradients of slopes and tables).  Numbers in nodes
 * have the compute type, indices 64 bits. */
#ifndef ATTN_DISTRIBUTED_CELL_H
#define ATTN_DISTRIBUTED_CELL_H

#include "bound.h"

typedef enum attn_node_kind { ATTN_NODE_ROW, ATTN_NODE_COLUMN, ATTN_NODE_SHARED, ATTN_NODE_KINDS } attn_node_kind;

/* A plan for pieces of a size.  Their keys are the rank's own, with its strides, or lie in the message of a part of `space` keys.
 */
typedef struct attn_cell_plan {
    int64_t queries, keys, space; /* space -1: own */
    attn_plan *plan;
} attn_cell_plan;

typedef struct attn_cells {
    attn_problem problem; /* the whole */
    attn_options options;
    attn_tensors planned; /* as the caller passed them to the plan */
    attn_call call;       /* of the plan */
    attn_origin origin;   /* of the call; zeros: it has none */
    attn_grid grid;
    attn_grid_index index;
    attn_bounds bounds;
    int64_t at[ATTN_BOUND];       /* bytes: of a result in its node, of a key tensor in the message of a full part */
    size_t node[ATTN_NODE_KINDS]; /* bytes; 0: there are no such results */
    int of_weights;               /* the run of weights.h: other results, and `band` queries at a time */
    int64_t band;                 /* 0: all queries of a part at once */
    int keys_stay;                /* ATTN_WAY_SPLIT_KEYS: every rank has all queries, and cells with its own keys */
    int any_order;                /* results are added as they come, and not in trees */
    int idle;                     /* no head is this rank's: its cells have no results, and call nothing */
    int has_sink;                 /* each part of queries has one more term: a cell without keys */
    int64_t documents;            /* packed sequences, with index.starts_q and _kv; problem.shape.batch is 1 then */
    attn_cell_plan *plans;        /* in the order of their sizes */
    int64_t plan_count, plan_capacity;
    size_t workspace; /* of the largest plan, lengths, and a shared node for packed sequences */
} attn_cells;

/* The parts of a rank, in rising order. */
typedef struct attn_owned {
    int64_t *q, *kv;
    int64_t count_q, count_kv;
} attn_owned;

/* Places of results in nodes, the sizes of these, and has_sink; bounds, grid, problem and planned are filled in. */
attn_status attn_cells_lay_out(attn_cells *cells, attn_error *error);

/* bounds, grid, index, problem, options and planned are filled in.  Call attn_cells_free afterwards, even if this fails. */
attn_status attn_cells_plan(attn_cells *cells, int rank, const attn_owned *own, attn_error *error);
void attn_cells_free(attn_cells *cells);

/* The type of a result in a node. */
static inline attn_dtype attn_node_dtype(const attn_cells *c, const attn_bound *b)
{
    return b->offset == offsetof(attn_tensors, topk_index) ? ATTN_I64 : c->bounds.compute;
}

/* How many rows of a result a node of a kind has space for. */
static inline int64_t attn_node_space(const attn_cells *c, attn_node_kind kind, const attn_bound *b)
{
    return kind == ATTN_NODE_SHARED ? b->shape[2] : attn_part_most(kind == ATTN_NODE_ROW ? &c->grid.q : &c->grid.kv);
}

/* ---- messages of keys ---- */

/* Bytes of the tensors of a part of `keys` keys. */
size_t attn_message_bytes(const attn_cells *cells, int64_t keys);
/* Copies those of part j, which the caller owns. */
void attn_message_fill(const attn_cells *cells, const attn_tensors *mine, int64_t j, char *message);

/* ---- cells ---- */

typedef struct attn_cell {
    int64_t i, j;        /* j -1: no keys */
    int64_t head;        /* query heads before the first one of these cells */
    const char *message; /* with the keys of part j; NULL: the caller owns them */
    char *node[ATTN_NODE_KINDS];
    char *scratch; /* of weights.h and uniform.h; NULL: it is not known yet */
} attn_cell;

/* Zeroes what cells write in place, the gradient of a bias: not all cells exist. */
void attn_cells_clear(const attn_cells *cells, const attn_tensors *mine);

attn_status attn_cell_run(const attn_cells *cells, const attn_tensors *mine, const attn_cell *cell, void *workspace,
                          attn_error *error);

/* left = left combined with right: nodes of a part with `tokens` tokens. */
void attn_node_add(const attn_cells *cells, attn_node_kind kind, int64_t tokens, char *left, const char *right);

/* Rounds the results of a row or column node into the caller's tensors, at the first token of the part; NULL: zeros. */
void attn_node_store(const attn_cells *cells, attn_node_kind kind, const attn_tensors *mine, int64_t local, int64_t tokens,
                     const char *node);

#endif
