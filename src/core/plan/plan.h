/* SPDX-License-Identifier: MIT
 * plan.h - what a plan is, and the steps that make one. */
#ifndef ATTN_PLAN_PLAN_H
#define ATTN_PLAN_PLAN_H

#include "../kernels/kernel.h"
#include "../sched/prepare.h"
#include "../sched/walk.h"

struct attn_plan {
    attn_prepare prepare; /* with the resolved problem in it */
    attn_walk walk;       /* with the one that prepare makes of it: dot products */
    const attn_kernel_row *row;
    char why[160];
    attn_allocator allocator; /* of the plan itself */
};

/* Copies a caller's struct of `given` bytes (its struct_size) into ours of `size` bytes: a smaller, older one is extended by
 * zeros, a larger, newer one is accepted while what we do not know of it is zero.  `name` is for the message. */
attn_status attn_struct_read(void *ours, size_t size, const void *theirs, size_t given, const char *name, attn_error *error);

/* The other way: fills as much of the caller's struct as it has. */
void attn_struct_write(void *theirs, size_t given, const void *ours, size_t size);

/* Every rule of a problem, in one list; on success *problem has no default types, no implied strides and no ATTN_BROADCAST left. */
attn_status attn_problem_resolve(attn_problem *problem, attn_error *error);
attn_status attn_shape_validate(const attn_shape *shape, attn_error *error);
attn_status attn_options_validate(const attn_options *options, attn_error *error);
attn_status attn_args_validate(const attn_problem *problem, const attn_args *args, attn_error *error);

/* The caller's allocator, or malloc's where it has no functions. */
attn_allocator attn_allocator_or_default(const attn_allocator *given);

/* A workspace for one call; NULL where it needs none. */
attn_status attn_workspace_take(const attn_allocator *allocator, size_t need, void **workspace, attn_error *error);
void attn_workspace_give(const attn_allocator *allocator, void *workspace);

/* The rule of a bias by distance. */
attn_status attn_bias_table_rule(const attn_bias_table *table, attn_distance_bias *rule, attn_error *error);

/* What the score kind asks for: a matrix w, its rows and columns (0 without w), and the channels of a key. */
int attn_problem_has_w(const attn_problem *problem);
void attn_problem_w_shape(const attn_problem *problem, int64_t shape[2]);
int64_t attn_problem_dim_k(const attn_problem *problem);

/* f64 where the storage is f64, else f32. */
attn_dtype attn_problem_compute(const attn_problem *problem);

/* NULL, or what keeps a problem with few queries from decode, for the sentence "tiles, since ...". */
const char *attn_decode_refusal(const attn_problem *problem);
/* 1 if a key head has so few query rows that decode is faster than tiles. */
int attn_has_few_queries(const attn_problem *problem);

/* Picks the row of kernels.def and says why in `why`. */
attn_status attn_kernel_choose(const attn_problem *problem, const attn_options *options, const attn_kernel_row **row, char *why,
                               size_t why_size, attn_error *error);

#endif
