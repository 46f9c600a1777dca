/* SPDX-License-Identifier: MIT
 *
 * sequences.h - the sequences of a batch of linear attention or of convolutions: where their tokens are, and which rows of a pool
 * of states they read and write.
 */
#ifndef ATTN_PLAN_SEQUENCES_H
#define ATTN_PLAN_SEQUENCES_H

#include "attn/attn.h"

/* cu_seqlens, number `number` of its family's tensors: it starts at 0, and no sequence has more than `most` tokens, the field
 * `len`. */
attn_status attn_starts_check(const void *starts, attn_dtype dtype, int64_t batch, int64_t most, const char *len, int number,
                              attn_error *error);

typedef struct attn_state_lists {
    int64_t batch, columns, pool;
    const void *initial, *final; /* lists of rows [batch], [batch][columns]; NULL: sequence b has row b */
    attn_dtype initial_type, final_type;
    int initial_number, final_number; /* of the lists among their family's tensors */
    int stores, in_place;             /* there are final states; they are in the tensor of the initial ones */
} attn_state_lists;

/* Entries of the table of attn_state_lists_distinct, of 16 bytes each; -1 for too many.  0 if there are no lists. */
int64_t attn_state_lists_capacity(int has_lists, int64_t batch, int64_t columns);

/* Every entry of the lists is a row of the pool, or -1. */
attn_status attn_state_lists_check(const attn_state_lists *lists, attn_error *error);
/* No row is written twice, or by one sequence and read by another, so that the order of sequences does not matter. */
attn_status attn_state_lists_distinct(const attn_state_lists *lists, void *table, attn_error *error);

#endif
