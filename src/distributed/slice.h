/* SPDX-License-Identifier: MIT
 * slice.h - the heads of one of the ranks that divide them, and what of each tensor that is. */
#ifndef ATTN_DISTRIBUTED_SLICE_H
#define ATTN_DISTRIBUTED_SLICE_H

#include "cell.h"
#include "split.h"

/* Heads of one rank. */
typedef struct attn_slice {
    int64_t first_q, count_q, first_kv, count_kv;
} attn_slice;

/* Of member n of a group. */
attn_slice attn_slice_of(const attn_shape *shape, int members, int n);

/* How many members of a group have heads; the others are idle. */
static inline int attn_slices_busy(const attn_shape *shape, int members) { return (int)attn_min(members, shape->heads_kv); }

/* Whether heads can be computed apart: nothing is summed over them, and the tensors of all tokens, queries (first) and keys (end),
 * have bytes that fit.  Fails if they cannot, and the split asks for that. */
attn_status attn_slices_divide(const attn_bounds *bounds, const attn_problem *problem, attn_range tokens, const attn_split *split,
                               int *divided, attn_error *error);

/* Along which axes the rank's masks and biases share elements, as bits to be or-ed over ranks, */
uint64_t attn_slices_shared(const attn_cells *cells);
/* of which this makes attn_bound.shares: what all ranks that have rows say. */
attn_status attn_slices_share(attn_cells *cells, uint64_t bits, attn_error *error);

/* Lets *cells, a copy of those of all heads, have those of a slice, of so many queries and keys in dense tensors. */
void attn_slice_take(attn_cells *cells, const attn_slice *slice, int64_t queries, int64_t keys);

#endif
