/* SPDX-License-Identifier: MIT
 * merge.h - merging results over disjoint keys, and the gradient of that; problems are resolved (no default types or strides). */
#ifndef ATTN_SCHED_MERGE_H
#define ATTN_SCHED_MERGE_H

#include "attn/attn.h"

typedef struct attn_merge_call {
    attn_merge_problem problem;
    const void *const *o_parts, *const *lse_parts;
    void *o, *lse;                 /* of attn_merge */
    const void *grad_o, *grad_lse; /* of its gradient */
    void *const *grad_o_parts, *const *grad_lse_parts;
} attn_merge_call;

void attn_sched_merge(const attn_merge_call *call);
void attn_sched_merge_backward(const attn_merge_call *call);

#endif
