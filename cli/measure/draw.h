/* SPDX-License-Identifier: MIT
 *
 * draw.h - numbers for the tensors of a measured problem: of the sizes that real ones have, drawn fast. */
#ifndef ATTN_CLI_MEASURE_DRAW_H
#define ATTN_CLI_MEASURE_DRAW_H

#include "testing/problem/problem.h"
#include "testing/problem/tensors.h"
#include "testing/random/random.h"

/*
 * Fills tensor t of the problem, which has `bytes` bytes.  Numbers are standard normal (from a repeating table of 65521: a prime,
 * so rows differ), masks keep a share of 1 - mask_drop, slopes are the published ones.
 */
void draw_tensor(random_state *random, const problem_spec *spec, const attn_problem *problem, const attn_tensors *tensors, int t,
                 void *memory, size_t bytes);

/* The same normal numbers, of this type. */
void draw_numbers(random_state *random, attn_dtype dtype, void *memory, size_t bytes);

#endif
