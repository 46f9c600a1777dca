/* SPDX-License-Identifier: MIT
 *
 * weights.h - results of forward that need the lse of all keys: weights, scores of ATTN_STAGE_WEIGHTS and column_sum.  They take a
 * second run over the cells, after the one that finds lse.  A cell computes the weights of a band of its queries at a time, which
 * are those of softmax over its own keys, and multiplies those of query i by
 *
 *      exp(lse_cell - lse)                 0 where the query sees none of the cell's keys
 *      keys of the cell / all keys         of a query that sees no key at all, with ATTN_EMPTY_UNIFORM
 *
 * They are then stored, or added up for each key, in a tree over the parts of queries as all sums over queries. */
#ifndef ATTN_DISTRIBUTED_WEIGHTS_H
#define ATTN_DISTRIBUTED_WEIGHTS_H

#include "piece.h"

/* 1 if forward has such results.  bounds are filled in. */
int attn_weights_wanted(const attn_cells *cells);
/* Checks that ranks have what such results, and others with a number for each pair, need: not where keys stay. */
attn_status attn_weights_check(const attn_cells *cells, attn_error *error);

/* From cells of a problem with such results, without plans, to those of the first run, or of the second.  lse is in both. */
void attn_weights_take(attn_cells *cells, int second);

/* ---- cells of the second run ---- */

/* What a cell needs beside a plan's workspace, cell->scratch, and whether its bytes fit. */
size_t attn_weights_bytes(const attn_cells *cells);
attn_status attn_weights_fit(const attn_cells *cells, attn_error *error);
/* From the call of a piece that attn_call_make has made to that of this run, with results in the scratch. */
void attn_weights_place(const attn_cells *cells, const attn_cell *cell, const attn_piece *p, attn_piece_call *call);

/* Before the pieces of a cell; after the call of each; and after all of them, when the node gets its sums. */
void attn_weights_begin(const attn_cells *cells, const attn_cell *cell);
void attn_weights_use(const attn_cells *cells, const attn_tensors *mine, const attn_cell *cell, const attn_piece *p);
void attn_weights_end(const attn_cells *cells, const attn_cell *cell);

#endif
