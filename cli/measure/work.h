/* SPDX-License-Identifier: MIT
 *
 * work.h - how much a problem has to compute with the lengths and offsets of its run.
 */
#ifndef ATTN_CLI_MEASURE_WORK_H
#define ATTN_CLI_MEASURE_WORK_H

#include <stdint.h>

#include "attn/attn.h"

/* The (query, key) pairs of the whole problem that the rules of seen.h and lengths leave; boolean masks and biases are not
 * subtracted, and the keys of a tree's drafts not counted.  tensors: those with ranges and lists of blocks, or NULL; lengths and
 * offsets have one i64 for each batch entry; NULL: full, 0. */
double visible_pairs(const attn_problem *problem, const attn_tensors *tensors, const int64_t *lengths_q, const int64_t *lengths_kv,
                     const int64_t *offsets);

/* Floating-point operations: forward 2 (dim_qk + dim_v) per pair, for the two products; backward 2.5 times that, for its five;
 * forward mode and double backward likewise, for the products that work.c lists. */
double problem_flops(const attn_problem *problem, double pairs);

#endif
