/* SPDX-License-Identifier: MIT
 * linear.h - problems of linear attention for `attn bench`. */
#ifndef ATTN_CLI_BENCH_LINEAR_H
#define ATTN_CLI_BENCH_LINEAR_H

#include "contender.h"
#include "testing/problem/linear_problem.h"

/* Draws the tensors and plans; backward reads what a forward of its own left.  Fills in shape, kernel, bytes, tokens and flops. */
attn_status linear_contender_create(contender *c, const problem_spec *spec, const attn_options *options, attn_error *error);
/* One call. */
attn_status linear_contender_execute(contender *c, attn_error *error);
void linear_contender_destroy(contender *c);

#endif
