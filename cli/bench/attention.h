/* SPDX-License-Identifier: MIT
 * attention.h - a problem string by a plan, for the kinds that are attention with something before it. */
#ifndef ATTN_CLI_BENCH_ATTENTION_H
#define ATTN_CLI_BENCH_ATTENTION_H

#include "candidate.h"

/* The problem of the string and its tensors, which must be accepted by the library; all data. */
attn_status attention_draw(candidate *c, const problem_spec *spec, const attn_problem *problem, const attn_tensors *tensors,
                           const attn_options *options, attn_error *error);
attn_status attention_plan(candidate *c, const operand *o, const attn_options *options, attn_error *error);
attn_status attention_execute(candidate *c, attn_error *error);

#endif
