/* SPDX-License-Identifier: MIT
 *
 * product.h - products of matrices, as layers need them beside attention: projections, and their gradients.  Conventions of attn.h
 * hold: statuses, errors, slots, ownership, threads.
 *
 *      attn_product_problem p = {.struct_size = sizeof p, .rows = tokens, .columns = out, .inner = in};
 *      attn_product_tensors t = {.struct_size = sizeof t, .a = attn_in(x), .b = attn_transposed(weight, in), .c = attn_out(y)};
 *      attn_product(&p, &t, NULL, &error);                        y[tokens][out] = x[tokens][in] weight[out][in]^T
 *
 * The same bits come out for any number of threads, any strides, any alignment, and for a row whatever rows are beside it, with one
 * exception: an element of C is a sum of its own row of A and column of B, in an order that depends on `inner` alone; but where the
 * rows of A and the columns of B lie along the sums, products of at most 4 rows have an order of their own (there is no time to
 * turn B: transposing it in registers takes twice as long as reading it).  With options.invariant or reproducible these few rows
 * have the order of many.  AVX2, AVX-512 and NEON have the same bits then, and without the exception always; plain C may round
 * differently.
 */
#ifndef ATTN_PRODUCT_H
#define ATTN_PRODUCT_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix whose columns lie in memory as rows, each `stride` elements after the one before: [columns][rows],
 * transposed without a copy. */
static inline attn_input attn_transposed(const void *data, int64_t stride)
{
    attn_input slot = attn_in(data);
    slot.stride[2] = 1;
    slot.stride[3] = stride;
    return slot;
}

/*
 *      c[i][j] = sum_k a[i][k] b[k][j]                     i < rows, j < columns, k < inner; added to what is there, if `add`
 *
 * Terms are summed in parts of 256, one after another within a part, and parts are added to C in their order; the few rows of the
 * exception in parts of 256 for each lane of a vector.  So the error of an element is at most
 *
 *      (5 + min(inner, 256) + inner/256 + add) u sum_k |a[i][k] b[k][j]|           (and |c| where added to)
 *
 * u the rounding unit of the type, but for overflow and numbers below the smallest normal one.  NaN and infinities go through the
 * sums as IEEE 754 has them; they reach the elements of their own row or column, and no other.  With inner = 0, C is 0 or, if
 * `add`, as it was.
 */
typedef struct attn_product_problem {
    size_t struct_size; /* sizeof(attn_product_problem) */
    attn_dtype dtype;   /* of A, B and C: ATTN_F32 (default) or ATTN_F64 */
    int add;            /* 1: C += A B */
    int64_t rows;       /* any size may be 0 */
    int64_t columns;
    int64_t inner;
    int64_t reserved[4]; /* must be 0 */
} attn_product_problem;

/*
 * All of the problem's dtype, and all needed.  Of A and B one of the last two strides is 1, whatever the other: rows or columns are
 * contiguous, and may broadcast or run backwards.  Of C the last is 1.  (A stride of an axis of size 1 does not count.)
 */
typedef struct attn_product_tensors {
    size_t struct_size;    /* sizeof(attn_product_tensors) */
    const attn_call *call; /* must be NULL */
    attn_input a;          /* [1, 1, rows, inner] */
    attn_input b;          /* [1, 1, inner, columns] */
    attn_output c;         /* [1, 1, rows, columns]: also read, where added to */
} attn_product_tensors;

/*
 * Computes C.  Elements between the rows of C are not written, and C shares no element with A or B.  Threads, instruction set and
 * allocator are those of options (NULL: the defaults; a small product stays on the calling thread); memory, less than 1 MiB for
 * each thread and so not held against workspace_limit, is allocated for the call.  Returns, with C untouched,
 *
 *      ATTN_ERR_ARGUMENT     NULL, struct_size, a tensor that is missing or not aligned to its elements, a switch or an option that
 *                            is out of its range
 *      ATTN_ERR_SHAPE        a size that is negative, or a matrix that does not fit an address space
 *      ATTN_ERR_STRIDE       neither rows nor columns contiguous, rows of C that overlap; C shares elements with A or B, or strides
 *                            too intricate to decide that
 *      ATTN_ERR_UNSUPPORTED  a dtype other than f32 and f64; an instruction set that this CPU or build has not, or that
 *                            cannot be reproducible
 *      ATTN_ERR_MEMORY       the allocator returned NULL
 *
 * Messages name the tensor; attn_error.tensor is -1, since these are in no table.
 */
ATTN_API attn_status attn_product(const attn_product_problem *problem, const attn_product_tensors *tensors,
                                  const attn_options *options, attn_error *error);

/*
 * *bytes = what attn_product_in needs for it, and for every product of the same dtype and options that is in no size larger,
 * however its matrices lie: rows, columns and inner all set to the largest of a program serve them all.  0 is possible.  Returns
 * what attn_product returns of these.
 */
ATTN_API attn_status attn_product_workspace_size(const attn_product_problem *problem, size_t *bytes, const attn_options *options,
                                                 attn_error *error);

/* The same in the caller's memory, of any alignment: allocates nothing, so that it cannot fail where attn_product_workspace_size
 * did not, but for its pointers.  ATTN_ERR_MEMORY: workspace_size is too small. */
ATTN_API attn_status attn_product_in(const attn_product_problem *problem, const attn_product_tensors *tensors, void *workspace,
                                     size_t workspace_size, const attn_options *options, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
