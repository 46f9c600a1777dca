/* SPDX-License-Identifier: MIT
 * merge.h - merging results over disjoint keys, and the gradient of that; calls are already validated. */
#ifndef ATTN_WALK_MERGE_MERGE_H
#define ATTN_WALK_MERGE_MERGE_H

#include "../../kernels/kernel.h"
#include "attn/merge.h"

/* A tensor: its address (NULL: absent) and its strides, without defaults. */
typedef struct attn_merge_slot {
    void *data;
    int64_t stride[4];
} attn_merge_slot;

typedef struct attn_merge_call {
    int64_t parts, batch, heads, len_q, dim_v;
    attn_dtype dtype, compute; /* of O, of lse */
    const attn_merge_part *kernel;
    const attn_input *o_parts, *lse_parts; /* as the caller gave them */
    attn_merge_slot o, lse;                /* of attn_merge */
    attn_merge_slot grad_o, grad_lse;      /* of its gradient */
    const attn_output *grad_o_parts, *grad_lse_parts;
    int threads;
    attn_parallel_for *parallel_for;
    void *parallel_context;
} attn_merge_call;

/* Strides of [batch, heads, len_q, dim] with the defaults filled in. */
void attn_merge_strides(const attn_merge_call *call, const int64_t given[4], int64_t dim, int64_t stride[4]);

void attn_run_merge(const attn_merge_call *call);
void attn_run_merge_backward(const attn_merge_call *call);

#endif
