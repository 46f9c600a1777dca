/* SPDX-License-Identifier: MIT
 * rows.h - results of forward for each query beside o: how those over two sets of keys are combined. */
#ifndef ATTN_DISTRIBUTED_ROWS_H
#define ATTN_DISTRIBUTED_ROWS_H

#include "piece.h"

/* Where a result of forward lies in a row node; -1: there is none. */
int64_t attn_rows_at(const attn_cells *cells, size_t offset);

/* Those of queries that see no key; the node is zeros. */
void attn_rows_clear(const attn_cells *cells, char *node);

/* After the call of a piece: it has counted keys from its first one on. */
void attn_rows_place(const attn_cells *cells, const attn_cell *cell, const attn_piece *p);

/* left = left combined with right, for `tokens` queries: all but o and, of a softmax, lse, which are combined afterwards, before
 * attn_rows_end. */
void attn_rows_combine(const attn_cells *cells, int64_t tokens, char *left, const char *right);
void attn_rows_end(const attn_cells *cells, int64_t tokens, char *left);

/* Before a node with all keys is stored: no part has had the queries of a packed sequence without keys. */
void attn_rows_finish(const attn_cells *cells, int64_t tokens, char *node);

#endif
