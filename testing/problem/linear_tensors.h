/* SPDX-License-Identifier: MIT
 *
 * linear_tensors.h - like tensors.h, for the tensors of linear attention. */
#ifndef ATTN_TESTING_PROBLEM_LINEAR_TENSORS_H
#define ATTN_TESTING_PROBLEM_LINEAR_TENSORS_H

#include <stddef.h>

#include "attn/linear.h"

enum { LINEARS = (sizeof(attn_linear_tensors) - offsetof(attn_linear_tensors, q)) / sizeof(attn_input) };
#define LINEAR(name) ((int)((offsetof(attn_linear_tensors, name) - offsetof(attn_linear_tensors, q)) / sizeof(attn_input)))

const attn_tensor_description *linear_about(int t);
attn_output *linear_slot(attn_linear_tensors *all, int t);
void linear_request(attn_linear_tensors *all, int t);

/* Of the tensors of forward and backward, those that p->op uses: backward reads o and denominators only with a denominator. */
attn_linear_tensors linear_of_op(const attn_linear_problem *p, const attn_linear_tensors *all);

/* "omega" for feature_matrix, "dq" for grad_q. */
const char *linear_file_name(int t);

/* Plans; then calls `take` for the memory of each tensor still ATTN_LATER and points `all` to it, unless it returns NULL. */
typedef void *linear_take(void *context, int t, const attn_tensor_plan *about);
attn_status linear_plan(attn_linear_plan **plan, const attn_linear_problem *p, attn_linear_tensors *all,
                        const attn_options *options, linear_take *take, void *context, attn_error *error);

#endif
