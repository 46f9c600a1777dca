/* SPDX-License-Identifier: MIT
 * index.h - tensors of numbers that decide which cells exist: they are read when a plan is made. */
#ifndef ATTN_DISTRIBUTED_INDEX_H
#define ATTN_DISTRIBUTED_INDEX_H

#include "grid.h"

/* Checks the sizes that the functions below use. */
attn_status attn_index_check(const attn_shape *shape, attn_error *error);
size_t attn_index_bytes(int64_t batch);
/* Into arrays at `memory`; offset_q is set for ATTN_ALIGN_BOTTOM_RIGHT, too. */
attn_status attn_index_read(attn_grid_index *index, const attn_tensors *tensors, const attn_problem *problem, int64_t *memory,
                            attn_error *error);
/* Queries (first) and keys (end) of all ranks: those of packed sequences, or the lengths of the shape. */
attn_range attn_index_tokens(const attn_grid_index *index, const attn_problem *problem);

/* What plans and predictions begin with: reads the index, lets problem->mask.align be ATTN_ALIGN_TOP_LEFT, checks the parts and
 * makes split->part no longer than the longer axis.  tokens: as attn_index_tokens returns. */
attn_status attn_index_begin(attn_grid_index *index, const attn_tensors *tensors, attn_problem *problem, int64_t *memory,
                             attn_split *split, attn_range *tokens, attn_error *error);

#endif
