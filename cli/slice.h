/* SPDX-License-Identifier: MIT
 *
 * slice.h - a part of a problem as a problem of its own: some queries of one batch entry.
 *
 * The numbers are the same bits as in the whole problem: a row depends on its query and its keys alone. */
#ifndef ATTN_CLI_SLICE_H
#define ATTN_CLI_SLICE_H

#include "attn/attn.h"

enum { SLICE_TENSORS = 11 };

/* Borrows the index arrays of the arguments, which are i64. */
typedef struct slicer {
    attn_problem whole;
    attn_args all;
    int64_t stride[SLICE_TENSORS][4]; /* in elements, 0 where it broadcasts */
} slicer;

/* The arguments of one slice; its numbers are what the pointers of args point to. */
typedef struct slice {
    attn_args args;
    int64_t lengths_q, lengths_kv, offset;
} slice;

/* 1 if a problem can be cut: not where numbers depend on the place in the whole (dropout, packed sequences, a backward pass, and
 * block masks unless each query has its own row of them). */
int slicer_can(const attn_problem *whole);

void slicer_init(slicer *s, const attn_problem *whole, const attn_args *all);

/* The problem of `rows` queries of one batch entry, the same for all entries. */
attn_problem slicer_problem(const slicer *s, int64_t rows);

/* Queries first .. first+rows-1 of batch entry b. */
void slicer_take(const slicer *s, int64_t b, int64_t first, int64_t rows, slice *part);

#endif
