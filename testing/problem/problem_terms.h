/* SPDX-License-Identifier: MIT
 *
 * problem_terms.h - score kinds and terms by distance, from words to the library's structs; private to this folder. */
#ifndef ATTN_TESTING_PROBLEM_PROBLEM_TERMS_H
#define ATTN_TESTING_PROBLEM_PROBLEM_TERMS_H

#include "problem.h"

/* Checks the words that need score, rel, t5 or clipped.  Reduces spec->shared to the tables that exist. */
attn_status problem_check_terms(problem_spec *spec, attn_error *error);

/* Sets problem->score, bias_table and relative, and requests their tensors; problem->op and shape must be set. */
attn_status problem_build_terms(const problem_spec *spec, attn_problem *problem, attn_tensors *tensors, attn_error *error);

#endif
