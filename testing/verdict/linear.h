/* SPDX-License-Identifier: MIT
 * linear.h - `attn check` of linear attention: one problem in each of its forms, against ref/. */
#ifndef ATTN_TESTING_VERDICT_LINEAR_H
#define ATTN_TESTING_VERDICT_LINEAR_H

#include "attn/linear.h"
#include "attn_ref.h"
#include "report.h"
#include "testing/problem/problem.h"

typedef struct linear_verdict {
    check_status status;
    char reason[200];
    double max_error;      /* of any output */
    double bound_fraction; /* of u (16 + features + tokens) times the largest number of the output, plus the storage rounding */
} linear_verdict;

/* Runs forward, and for linear-bwd backward, on numbers within +-1 drawn from the seed, with the kernel of options->isa.  Returns
 * an error if the problem cannot be run. */
attn_status check_linear(const problem_spec *spec, const attn_options *options, linear_verdict *verdict, attn_error *error);

/* The problem as ref/ has it, without its tensors. */
ref_linear linear_definition(const attn_linear_problem *p);

/* Problems that cover maps, rules, decays, types and remainders of tiles; NULL past the last. */
const char *check_linear_problem(int index);

#endif
