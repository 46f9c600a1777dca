/* SPDX-License-Identifier: MIT
 * execute.h - executions whose queries are rotated on their way. */
#ifndef ATTN_API_EXECUTE_H
#define ATTN_API_EXECUTE_H

#include "../tile/rotate.h"
#include "attn/attn.h"

/* 1 if all walks that have something to do can. */
int attn_execution_can_rotate(const attn_plan *plan, const attn_tensors *tensors);

/* attn_execute of rotated queries; rotation NULL: of the queries as they are. */
attn_status attn_execute_rotated(const attn_plan *plan, const attn_tensors *tensors, const attn_rotation *rotation, void *workspace,
                                 size_t workspace_size, attn_error *error);

#endif
