/* SPDX-License-Identifier: MIT
 *
 * swap.h - rows of tensors go from the owners of tokens to the owners of heads, and back. */
#ifndef ATTN_DISTRIBUTED_SWAP_H
#define ATTN_DISTRIBUTED_SWAP_H

#include "heads.h"

/* What goes: to the owners of heads, what they read; to those of tokens, what was computed. */
typedef enum attn_swap { ATTN_SWAP_TO_HEADS, ATTN_SWAP_TO_TOKENS } attn_swap;

/* Tokens of a rank. */
typedef struct attn_swap_rows {
    int64_t q, kv;
} attn_swap_rows;

/* Of a tensor: 1 if it goes at all, and the bytes of `rows` tokens for the heads of a slice. */
int attn_swap_goes(const attn_bound *b, attn_swap way);
size_t attn_swap_tensor_bytes(const attn_bound *b, const attn_mask *mask, attn_swap_rows rows, const attn_slice *slice);

/* Of a message: rows of one rank, with the heads of another. */
size_t attn_swap_bytes(const attn_cells *cells, attn_swap way, attn_swap_rows rows, const attn_slice *slice);

/* All members of a group exchange their rows, one pair of ranks after another.  tensors and message: in the workspace. */
attn_status attn_swap_run(const attn_distributed_plan *plan, attn_swap way, const attn_tensors *mine, char *tensors,
                          char *const message[2], attn_error *error);

/* What attn_swap_run sends, and its largest messages. */
void attn_swap_count(const attn_distributed_plan *plan, attn_swap way, attn_run_needs *needs, size_t message[2]);

#endif
