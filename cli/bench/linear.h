/* SPDX-License-Identifier: MIT
 * linear.h - problems of linear attention for `attn bench`: linear:f32:sq8192:d64:causal:phi=elu1, and linear-bwd. */
#ifndef ATTN_CLI_BENCH_LINEAR_H
#define ATTN_CLI_BENCH_LINEAR_H

#include "../linear_tensors.h"
#include "contender.h"

/* 1 for the operations linear and linear-bwd. */
int linear_problem_is(const problem_spec *spec);

/* The library's problem and its tensors, of forward and backward together, each ATTN_LATER; words that mean nothing here are
 * refused. */
attn_status linear_problem_build(const problem_spec *spec, attn_linear_problem *problem, attn_linear_tensors *tensors,
                                 attn_error *error);

/* Draws the tensors and plans; backward reads what a forward of its own left.  Fills in shape, kernel, bytes, tokens and flops. */
attn_status linear_contender_create(contender *c, const problem_spec *spec, const attn_options *options, attn_error *error);
/* One call. */
attn_status linear_contender_execute(contender *c, attn_error *error);
void linear_contender_destroy(contender *c);

#endif
