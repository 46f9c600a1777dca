/* SPDX-License-Identifier: MIT
 *
 * uniform.h - queries that see no key, with ATTN_EMPTY_UNIFORM: each key has the weight 1 / keys, of all keys of the whole.  The
 * call of a cell, which finds them by their lse, gives 1 / its own keys instead.  What such weights enter is linear in them: sums
 * over grad_o_i for the keys, and the tangent of o_i.  So cells of backward and double backward get these rows of grad_o multiplied
 * by their share of the keys, and forward mode's tangent is multiplied by it afterwards. */
#ifndef ATTN_DISTRIBUTED_UNIFORM_H
#define ATTN_DISTRIBUTED_UNIFORM_H

#include "piece.h"

/* How much of all keys that a query could average a piece has. */
double attn_uniform_share(const attn_cells *cells, const attn_piece *p);

/* 1 if a cell has grad_o in its scratch, and how many bytes; and whether these fit. */
int attn_uniform_has_rows(const attn_cells *cells);
size_t attn_uniform_bytes(const attn_cells *cells);
attn_status attn_uniform_fit(const attn_cells *cells, attn_error *error);
/* Lets the call of a piece read that. */
void attn_uniform_place(const attn_cells *cells, const attn_cell *cell, const attn_piece *p, attn_piece_call *call);

/* Before the call of a piece: fills the scratch; after it: multiplies tangents in the node. */
void attn_uniform_begin(const attn_cells *cells, const attn_tensors *mine, const attn_cell *cell, const attn_piece *p);
void attn_uniform_end(const attn_cells *cells, const attn_tensors *mine, const attn_cell *cell, const attn_piece *p);

#endif
