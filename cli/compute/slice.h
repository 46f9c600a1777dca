/* SPDX-License-Identifier: MIT
 *
 * slice.h - a part of a problem as a problem of its own: some queries of one batch entry; or, in a backward pass, one batch entry
 * and key head, which is independent of the others.
 *
 * The results have the same bits as in the whole problem: a row depends only on its query and its keys. */
#ifndef ATTN_CLI_COMPUTE_SLICE_H
#define ATTN_CLI_COMPUTE_SLICE_H

#include "testing/problem/tensors.h"

/* Borrows the index arrays of the tensors, which are i64. */
typedef struct slicer {
    attn_problem whole;
    attn_tensors all;
} slicer;

/* The tensors of one slice, and the numbers that its slots of lengths and offset point to. */
typedef struct slice {
    attn_tensors tensors;
    int64_t lengths_q, lengths_kv, offset;
} slice;

/* 1 if a problem can be cut: not if results depend on the position in the whole (dropout, packed sequences, a backward pass, and
 * block masks unless each query has its own row of them). */
int slicer_can(const attn_problem *whole, const attn_tensors *all);

void slicer_init(slicer *s, const attn_problem *whole, const attn_tensors *all);

/* The problem of `rows` queries of one batch entry, the same for all entries, and its tensors as a plan needs them. */
attn_problem slicer_problem(const slicer *s, int64_t rows, attn_tensors *tensors);

/* Queries first .. first+rows-1 of batch entry b. */
void slicer_take(const slicer *s, int64_t b, int64_t first, int64_t rows, slice *part);

/* 1 if a backward pass can be cut by heads: not if an output sums over heads or batch entries (gradients of parameters), nor with
 * packed sequences or dropout. */
int slice_heads_can(const attn_problem *whole, const attn_tensors *all);
/* The problem of one slice, the same for all, and the tensors of batch entry b and key head g. */
attn_problem slice_heads_problem(const attn_problem *whole);
attn_tensors slice_heads_tensors(const attn_problem *whole, const attn_tensors *all, int64_t b, int64_t g);

#endif
