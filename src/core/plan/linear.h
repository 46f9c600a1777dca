/* SPDX-License-Identifier: MIT
 * linear.h - the struct of a plan of linear attention, and its rules. */
#ifndef ATTN_PLAN_LINEAR_H
#define ATTN_PLAN_LINEAR_H

#include "../walk/linear/linear.h"
#include "tensors.h"

/* What attn_features_count returns. */
static inline int64_t attn_linear_dim_features(attn_features kind, int64_t dim_qk, int64_t features)
{
    if (dim_qk < 0 || features < 0) return 0;
    switch (kind) {
    case ATTN_FEATURES_ELU1:
    case ATTN_FEATURES_IDENTITY:
    case ATTN_FEATURES_RELU:
    case ATTN_FEATURES_SOFTMAX:
        return dim_qk;
    case ATTN_FEATURES_FAVOR:
        return features;
    case ATTN_FEATURES_FOURIER:
    case ATTN_FEATURES_TRIGONOMETRIC:
        return features <= INT64_MAX / 2 ? 2 * features : 0;
    }
    return 0;
}

struct attn_linear_plan {
    attn_linear_walk walk;
    const attn_kernel_row *row;
    char why[96];
    attn_allocator allocator;
    int tensors;
    attn_planned_tensor tensor[ATTN_LINEAR_SLOTS]; /* those present, in order of number */
};

/* Reads the caller's problem, and which tensors are present. */
attn_status attn_linear_read(attn_linear_resolved *resolved, const attn_linear_problem *problem, const attn_linear_tensors *tensors,
                             attn_error *error);
/* Every rule of a problem and its tensors; on success its defaults are resolved, and list has its tensors. */
attn_status attn_linear_resolve(attn_linear_resolved *problem, const attn_linear_tensors *tensors, attn_planned_tensor *list,
                                int *count, attn_error *error);
/* The checked arguments of an execution: the planned tensors again, with their addresses.  No tensor may share the workspace. */
attn_status attn_linear_args_read(const struct attn_linear_plan *plan, const attn_linear_tensors *tensors, attn_bytes workspace,
                                  attn_linear_args *args, attn_error *error);

/* No row of a pool is written twice, or by one sequence and read by another; table: memory of the plan's workspace. */
attn_status attn_linear_slots_distinct(const attn_linear_resolved *p, const attn_linear_args *args, void *table, attn_error *error);

/* The shape of a tensor, for attn_tensor_facts. */
void attn_linear_shape(const void *problem, int number, int64_t shape[4]);

#endif
