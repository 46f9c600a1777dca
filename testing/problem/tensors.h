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

/* The number of tensors; the index of one, TENSOR(grad_q), as in attn_tensor_describe. */
enum { TENSORS = (sizeof(attn_tensors) - offsetof(attn_tensors, q)) / sizeof(attn_input) };
#define TENSOR(name) ((int)((offsetof(attn_tensors, name) - offsetof(attn_tensors, q)) / sizeof(attn_input)))

const attn_tensor_description *tensors_about(int t);
/* The index of a slot by name; -1: none. */
int tensors_find(const char *name);

/* The name in files: "dq" for grad_q, "slopes" for alibi_slopes, often the slot's name. */
const char *tensors_file_name(int t);

/* The slot of an input or output: both have the same layout. */
attn_output *tensors_slot(attn_tensors *all, int t);
const attn_output *tensors_at(const attn_tensors *all, int t);
int tensors_has(const attn_tensors *all, int t);
/* Marks the tensor as present for planning; its memory comes later. */
void tensors_request(attn_tensors *all, int t);

/* The tensors that an operation always needs, as ATTN_LATER. */
attn_tensors tensors_needed(attn_op op);

/* 1 if t is present and the operation writes it; or reads it, and forward does not write it. */
int tensors_writes(const attn_tensors *all, attn_op op, int t);
int tensors_reads(const attn_tensors *all, attn_op op, int t);
/* The tensors that `op` uses; the others become slots of zeros. */
attn_tensors tensors_of_op(const attn_tensors *all, attn_op op);
/* The forward pass whose o and lse another operation reads. */
attn_problem tensors_forward(const attn_problem *beyond, const attn_tensors *all, attn_tensors *of_forward);

/* ---- layouts of the slots, with all defaults filled in ---- */

/* The storage type of t; the compute type, f64 or f32. */
attn_dtype tensors_dtype(const attn_tensors *all, int t);
attn_dtype tensors_compute(const attn_tensors *all);

/* The four sizes, regardless of broadcasting; for a gradient that is written, 1 where its tensor broadcasts.  Packed tensors have
 * an entry of the greatest length for each sequence.  0: a list whose length the problem does not determine. */
void tensors_shape(const attn_problem *problem, const attn_tensors *all, int t, int64_t shape[4]);
/* The same with blocks of channels, if t is stored in those, in place of channels: what its strides count. */
void tensors_elements(const attn_problem *problem, const attn_tensors *all, int t, int64_t shape[4]);
/* The size of an axis that every kind of attention has; 1 for any other. */
int64_t tensors_axis(const attn_shape *shape, attn_axis axis);
/* 1 if the axis broadcasts. */
int tensors_broadcasts(const attn_tensors *all, int t, int axis);
/* tensors_elements with 1 on axes that broadcast: the elements in memory, unless packed. */
void tensors_extent(const attn_problem *problem, const attn_tensors *all, int t, int64_t shape[4]);
/* Strides in elements; 0 on axes that broadcast.  Packed: [token, head, channel] if no strides are given. */
void tensors_strides(const attn_problem *problem, const attn_tensors *all, int t, int64_t stride[4]);

/* Packed sequences: 1 if this tensor holds the concatenated tokens of all sequences; 1 if its tokens are keys. */
int tensors_packs(int t);
int tensors_of_keys(int t);
/* Whether tensor t lies in pages where keys and values do. */
int tensors_in_pages(int t);
/* Whether tensor t holds the tokens of all sequences one after the other. */
int tensors_are_packed(const attn_tensors *all, int t);

/* Sets the strides of a dense tensor with its axes in this order, outermost first, broadcasting on the axes in the bit set `one`.
 * Returns 0 if the number of elements overflows 64 bits. */
int tensors_lay(attn_output *slot, const int64_t shape[4], const int order[4], int one);

/* Reads all elements as dense doubles [0][1][2][3] of this shape, which is that of tensors_shape or tensors_extent.  begin: NULL,
 * or the offsets of packed sequences. */
void tensors_read(const attn_problem *problem, const attn_tensors *all, int t, const int64_t shape[4], const int64_t *begin,
                  double *to);

#endif
