/* SPDX-License-Identifier: MIT
 *
 * tensors.h - the library's table of tensors, for loops over it: slots by number, names in files, shapes, strides and types of the
 * tensors of a problem.
 */
#ifndef ATTN_TESTING_PROBLEM_TENSORS_H
#define ATTN_TESTING_PROBLEM_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "attn/attn.h"

/* How many there are; the number of one, TENSOR(grad_q), as attn_tensor_describe counts. */
enum { TENSORS = (sizeof(attn_tensors) - offsetof(attn_tensors, q)) / sizeof(attn_input) };
#define TENSOR(name) ((int)((offsetof(attn_tensors, name) - offsetof(attn_tensors, q)) / sizeof(attn_input)))

const attn_tensor_description *tensors_about(int t);
/* Number t of a slot's name; -1: none. */
int tensors_find(const char *name);

/* What files call it where that is not the slot's name: "dq" for grad_q, "slopes" for alibi_slopes. */
const char *tensors_file_name(int t);

/* The slot, whether it is of an input or an output: both look alike. */
attn_output *tensors_slot(attn_tensors *all, int t);
const attn_output *tensors_at(const attn_tensors *all, int t);
int tensors_has(const attn_tensors *all, int t);
/* Plans need to know that it is there: its memory comes later. */
void tensors_ask(attn_tensors *all, int t);

/* What an operation always needs, ATTN_LATER. */
attn_tensors tensors_needed(attn_op op);

/* 1 if t is there and the operation writes it; reads it, and no forward pass writes it. */
int tensors_writes(const attn_tensors *all, attn_op op, int t);
int tensors_reads(const attn_tensors *all, attn_op op, int t);
/* Those that `op` has a use for; the others become slots of zeros. */
attn_tensors tensors_of_op(const attn_tensors *all, attn_op op);
/* The forward pass whose o and lse another operation reads. */
attn_problem tensors_forward(const attn_problem *beyond, const attn_tensors *all, attn_tensors *of_forward);

/* ---- layouts: of what stands in the slots, with all defaults filled in ---- */

/* The type; the compute type, f64 or f32. */
attn_dtype tensors_dtype(const attn_tensors *all, int t);
attn_dtype tensors_compute(const attn_tensors *all);

/* The four sizes, whatever broadcasts; of a gradient that is written, 1 where its tensor broadcasts.  Packed tensors have an entry
 * of the greatest length for each sequence.  0: the axis is of a list whose length the problem does not say. */
void tensors_shape(const attn_problem *problem, const attn_tensors *all, int t, int64_t shape[4]);
/* The size of an axis that every kind of attention has; 1: it is none of them. */
int64_t tensors_axis(const attn_shape *shape, attn_axis axis);
/* 1 if the axis has one element for all of its indices. */
int tensors_broadcasts(const attn_tensors *all, int t, int axis);
/* The same with 1 where it broadcasts: what lies in memory, unless it is packed. */
void tensors_extent(const attn_problem *problem, const attn_tensors *all, int t, int64_t shape[4]);
/* Elements between neighbours; 0 where it broadcasts.  Packed: [token, head, channel] where no strides are given. */
void tensors_strides(const attn_problem *problem, const attn_tensors *all, int t, int64_t stride[4]);

/* Packed sequences: 1 if this tensor holds the tokens of all sequences, one behind the other; 1 if they are keys. */
int tensors_packs(int t);
int tensors_of_keys(int t);

/* Gives it strides: of a dense tensor with its axes in this order, outermost first, that broadcasts on the axes of the bit set
 * `one`.  0: more elements than 64 bits count. */
int tensors_lay(attn_output *slot, const int64_t shape[4], const int order[4], int one);

/* All elements as dense doubles [0][1][2][3] of this shape, which is that of tensors_shape or tensors_extent.  begin: NULL, or
 * where packed sequences begin. */
void tensors_read(const attn_problem *problem, const attn_tensors *all, int t, const int64_t shape[4], const int64_t *begin,
                  double *to);

#endif
