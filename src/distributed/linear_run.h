/* SPDX-License-Identifier: MIT
 *
 * linear_run.h - a plan of linear attention over ranks, and what happens in what order: the state of one group of heads after
 * another comes from the rank before, moves over the parts of this one and goes on.  The same code counts what a plan needs. */
#ifndef ATTN_DISTRIBUTED_LINEAR_RUN_H
#define ATTN_DISTRIBUTED_LINEAR_RUN_H

#include "linear_pass.h"

/* What an execution does; found by one that only counts. */
typedef struct attn_linear_needs {
    int64_t requests; /* messages under way at the same time */
    int64_t messages, bytes, calls;
} attn_linear_needs;

struct attn_distributed_linear_plan {
    attn_linear_passes passes;
    attn_linear_plan *own; /* of all tokens of the rank in one call: it checks what executions are given */
    attn_transport transport;
    attn_isa isa;
    int me, ranks;
    attn_linear_needs needs;
    size_t workspace;
};

/* How the workspace is divided. */
typedef struct attn_linear_memory {
    char *lengths; /* [parts of keys + 1][batch]: of each part, and of the rank */
    void **requests;
    char *states, *gradients; /* [copies][groups][passes.group] */
    char *call;
} attn_linear_memory;

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
