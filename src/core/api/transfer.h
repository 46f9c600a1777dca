/* SPDX-License-Identifier: MIT
 * transfer.h - what functions that move tokens share: the kernel and threads of a call, and the rules of its rope. */
#ifndef ATTN_API_TRANSFER_H
#define ATTN_API_TRANSFER_H

#include "../walk/transfer/transfer.h"

/* Chooses the kernel, and as many threads as the tensors are worth; options NULL: all defaults, `serial`: one thread. */
attn_status attn_transfer_plan(attn_transfer_walk *walk, const attn_options *options, int serial, attn_error *error);

/* Copies a caller's rope, with the slots of its tables resolved, and checks all its rules for rows of so many channels. */
attn_status attn_rope_read(attn_rope *copy, const attn_rope *rope, int64_t channels, attn_error *error);
static inline int attn_rope_has_table(const attn_rope *rope) { return rope->cosines || rope->cos_table.data; }

#endif
