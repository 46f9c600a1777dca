/* SPDX-License-Identifier: MIT
 * linear.h - what a plan of linear attention is, and its rules. */
#ifndef ATTN_PLAN_LINEAR_H
#define ATTN_PLAN_LINEAR_H

#include "../sched/linear.h"

enum { ATTN_LINEAR_TENSORS = 28 };

/* A pointer of attn_linear_args that a problem needs, found once: a token takes no longer than a few checks like these. */
typedef struct attn_linear_need {
    const char *name;
    size_t offset; /* in attn_linear_args */
    size_t size;   /* of an element */
    int output;
    int state; /* not 0: may be the same pointer as the other one with this number */
} attn_linear_need;

typedef struct attn_linear_needs {
    int count;
    attn_linear_need list[ATTN_LINEAR_TENSORS];
} attn_linear_needs;

struct attn_linear_plan {
    attn_linear_walk walk;
    attn_linear_needs needs;
    const attn_kernel_row *row;
    char why[96];
    attn_allocator allocator;
};

/* Every rule of a problem; on success no default and no implied stride is left in it. */
attn_status attn_linear_resolve(attn_linear_problem *problem, attn_linear_needs *needs, attn_error *error);
attn_status attn_linear_args_validate(const attn_linear_problem *problem, const attn_linear_needs *needs,
                                      const attn_linear_args *args, attn_error *error);

#endif
