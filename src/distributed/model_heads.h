/* SPDX-License-Identifier: MIT
 * model_heads.h - what ranks that divide heads send each other before and after they compute. */
#ifndef ATTN_DISTRIBUTED_MODEL_HEADS_H
#define ATTN_DISTRIBUTED_MODEL_HEADS_H

#include "swap.h"

/* Members of a group with equally many heads: first .. end - 1. */
typedef struct attn_model_class {
    int first, end;
    attn_slice slice; /* of the first of them */
} attn_model_class;

/* At most two; those with more heads come first.  Returns how many there are. */
int attn_model_classes(const attn_shape *shape, int members, attn_model_class classes[2]);

typedef struct attn_model_rank {
    attn_swap_rows rows;    /* that it owns */
    double messages, bytes; /* that it sends within its group */
} attn_model_rank;

/* Fills in each of `ranks`; cells are those of all heads, whose grid has these ranks. */
void attn_model_swaps(const attn_cells *cells, int ranks, int members, attn_model_rank *each);

#endif
