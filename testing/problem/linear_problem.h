/* SPDX-License-Identifier: MIT
 *
 * linear_problem.h - problem_build for linear attention: linear:f32:sq8192:d64:causal:phi=elu1, and linear-bwd. */
#ifndef ATTN_TESTING_PROBLEM_LINEAR_PROBLEM_H
#define ATTN_TESTING_PROBLEM_LINEAR_PROBLEM_H

#include "linear_tensors.h"
#include "problem.h"

/* 1 for the operations linear and linear-bwd. */
int linear_problem_is(const problem_spec *spec);

/* Builds the library's problem and its tensors, of forward and backward together, each ATTN_LATER; rejects words of no use here. */
attn_status linear_problem_build(const problem_spec *spec, attn_linear_problem *problem, attn_linear_tensors *tensors,
                                 attn_error *error);

#endif
