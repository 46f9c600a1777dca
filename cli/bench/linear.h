/* SPDX-License-Identifier: MIT
 * linear.h - problems of linear attention for `attn bench`. */
#ifndef ATTN_CLI_BENCH_LINEAR_H
#define ATTN_CLI_BENCH_LINEAR_H

#include "candidate.h"
#include "testing/problem/linear_problem.h"

/* Draws the tensors and plans; for backward, runs forward first.  Fills in shape, kernel, bytes, tokens and flops. */
attn_status linear_candidate_create(candidate *c, const problem_spec *spec, const attn_options *options, attn_error *error);
/* One call. */
attn_status linear_candidate_execute(candidate *c, attn_error *error);
void linear_candidate_destroy(candidate *c);

#endif
