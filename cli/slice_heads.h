/* SPDX-License-Identifier: MIT
 *
 * slice_heads.h - a backward pass as one for each batch entry and each head of keys, which touch nothing of one another. */
#ifndef ATTN_CLI_SLICE_HEADS_H
#define ATTN_CLI_SLICE_HEADS_H

#include "attn/attn.h"

/* 1 if it can be cut: not where a number is summed over heads or batch entries or depends on which head it is (gradients of
 * parameters, ALiBi, sinks, scales, dropout), and not packed sequences. */
int slice_heads_can(const attn_problem *whole);

/* The problem of one slice, the same for all, with the strides of the whole. */
attn_problem slice_heads_problem(const attn_problem *whole);

/* The arguments of batch entry b and head g of keys.  Index arrays are i64. */
attn_args slice_heads_args(const attn_problem *whole, const attn_args *all, int64_t b, int64_t g);

#endif
