/* SPDX-License-Identifier: MIT
 *
 * product.h - matrix products, which layers need besides attention: projections and their gradients.  Conventions of attn.h hold:
 * statuses, errors, slots, ownership, threads.
 *
 *      attn_product_problem p = {.struct_size = sizeof p, .rows = tokens, .columns = out, .inner = in};
 *      attn_product_tensors t = {.struct_size = sizeof t, .a = attn_in(x), .b = attn_transposed(weight, in), .c = attn_out(y)};
 *      attn_product(&p, &t, NULL, &error);                        y[tokens][out] = x[tokens][in] weight[out][in]^T
 *
 * The result has the same bits for any number of threads, any strides and any alignment, and a row has the same bits whatever rows
 * are beside it: each element of C is summed over its own row of A and column of B in an order that depends on `inner` alone.
 * There is one exception: if the rows of A and the columns of B are contiguous along the sums, products of at most 4 rows use an
 * order of their own (transposing B in registers would take twice as long as reading it).  With options.invariant or reproducible,
 * these few rows are summed in the order of many.  AVX2, AVX-512 and NEON then have the same bits, as they always have outside the
 * exception; plain C may round differently.
 */
#ifndef ATTN_PRODUCT_H
#define ATTN_PRODUCT_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix stored transposed, as [columns][rows], each column `stride` elements after the one before: used without a copy. */
static inline attn_input attn_transposed(const void *data, int64_t stride)
{
    attn_input slot = attn_in(data);
    slot.stride[2] = 1;
    slot.stride[3] = stride;
    return slot;
}

/*
 *      c[i][j] = sum_k a[i][k] b[k][j]                     i < rows, j < columns, k < inner; added to c if `add`
 *
 * Terms are summed in blocks of 256, sequentially within a block, and blocks are added to C in order; for the few rows of the
 * exception, in blocks of 256 per vector lane.  So the error of an element is at most
 *
 *      (5 + min(inner, 256) + inner/256 + add) u sum_k |a[i][k] b[k][j]|           (plus |c| if `add`)
 *
 * u the unit roundoff of the type, barring overflow and subnormal numbers.  NaN and infinities propagate as in IEEE 754, to the
 * elements of their own row or column and no others.  With inner = 0, C is 0 or, if `add`, unchanged.
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
 * All of the problem's dtype, and all needed.  A and B have a 1 among their last two strides, and any other: rows or columns are
 * contiguous, and may broadcast or run backwards.  The last stride of C is 1.  (Strides of axes of size 1 are ignored.)
 */
typedef struct attn_product_tensors {
    size_t struct_size;    /* sizeof(attn_product_tensors) */
    const attn_call *call; /* must be NULL */
    attn_input a;          /* [1, 1, rows, inner] */
    attn_input b;          /* [1, 1, inner, columns] */
    attn_output c;         /* [1, 1, rows, columns]: also read if `add` */
} attn_product_tensors;

/*
 * Computes C.  Elements between the rows of C are not written, and C shares no element with A or B.  Threads, instruction set and
 * allocator are those of options (NULL: the defaults; a small product stays on the calling thread); memory, less than 1 MiB per
 * thread and so not checked against workspace_limit, is allocated for the call.  Returns, with C untouched,
 *
 *      ATTN_ERR_ARGUMENT     NULL, struct_size, a tensor that is missing or not aligned to its elements, a flag or an option that
 *                            is out of its range
 *      ATTN_ERR_SHAPE        a negative size, or a matrix that does not fit an address space
 *      ATTN_ERR_STRIDE       neither rows nor columns contiguous, rows of C that overlap; C shares elements with A or B, or strides
 *                            too intricate to decide that
 *      ATTN_ERR_UNSUPPORTED  a dtype other than f32 and f64; an instruction set that this CPU or build lacks, or that cannot be
 *                            reproducible
 *      ATTN_ERR_MEMORY       the allocator returned NULL
 *
 * Messages name the tensor; attn_error.tensor is -1, since these tensors are in no table.
 */
ATTN_API attn_status attn_product(const attn_product_problem *problem, const attn_product_tensors *tensors,
                                  const attn_options *options, attn_error *error);

/*
 * *bytes = the workspace that attn_product_in needs for this product, and for every product of the same dtype and options that is
 * no larger in any size, whatever its strides: with rows, columns and inner each set to the largest in a program, it serves them
 * all.  0 is possible.  Returns what attn_product returns for these arguments.
 */
ATTN_API attn_status attn_product_workspace_size(const attn_product_problem *problem, size_t *bytes, const attn_options *options,
                                                 attn_error *error);

/* The same in the caller's memory, of any alignment.  Allocates nothing, so if attn_product_workspace_size succeeded, only the
 * tensors and the workspace can make it fail.  ATTN_ERR_MEMORY: workspace_size is too small; ATTN_ERR_ARGUMENT: a matrix shares
 * memory with the workspace. */
ATTN_API attn_status attn_product_in(const attn_product_problem *problem, const attn_product_tensors *tensors, void *workspace,
                                     size_t workspace_size, const attn_options *options, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
