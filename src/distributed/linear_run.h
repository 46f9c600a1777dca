/* SPDX-License-Identifier: MIT
 *
 * linear_run.h - what happens in what order: the state of one group of heads after another comes from the rank before, moves over
 * the parts of this one and goes on.  The same code counts what a plan needs. */
#ifndef ATTN_DISTRIBUTED_LINEAR_RUN_H
#define ATTN_DISTRIBUTED_LINEAR_RUN_H

#include "linear_walk.h"

/* Divides a workspace of any alignment; returns its bytes.  workspace NULL: only that. */
size_t attn_linear_divide(const attn_distributed_linear_plan *plan, char *workspace, attn_linear_memory *memory);
/* 1 if these do not overflow. */
int attn_linear_fits(const attn_distributed_linear_plan *plan);

/* Runs the plan.  If a call fails, all messages are exchanged nevertheless; the transport failed if this returns ATTN_ERR_IO. */
attn_status attn_linear_run(const attn_distributed_linear_plan *plan, const attn_linear_tensors *mine,
                            const attn_linear_memory *memory, attn_error *error);
/* Counts what that does. */
attn_linear_needs attn_linear_count(const attn_distributed_linear_plan *plan);

#endif
