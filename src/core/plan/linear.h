/* SPDX-License-Identifier: MIT
 * linear.h - what a plan of linear attention is, and its rules. */
#ifndef ATTN_PLAN_LINEAR_H
#define ATTN_PLAN_LINEAR_H

#include "../sched/linear.h"

struct attn_linear_plan {
    attn_linear_walk walk;
    const attn_kernel_row *row;
    char why[96];
    attn_allocator allocator;
};

/* Every rule of a problem; on success no default and no implied stride is left in it. */
attn_status attn_linear_resolve(attn_linear_problem *problem, attn_error *error);
attn_status attn_linear_args_validate(const attn_linear_problem *problem, const attn_linear_args *args, attn_error *error);

#endif
