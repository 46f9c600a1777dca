/* SPDX-License-Identifier: MIT
 * tensors.h - the tensors of a problem as a table: name, shape, layout, pointer, and the rules they share. */
#ifndef ATTN_PLAN_TENSORS_H
#define ATTN_PLAN_TENSORS_H

#include "attn/attn.h"

/* A row of a table of tensors. */
typedef struct attn_tensor_row {
    const char *name;
    int output;
    int used;
    attn_layout *layout; /* NULL: a dense array of shape[0] numbers */
    int64_t shape[4];
    attn_dtype natural; /* what ATTN_DTYPE_DEFAULT means */
    unsigned types;     /* allowed: bits 1 << dtype */
    const char *types_text;
    int last_contiguous; /* the last stride must be 1 */
    int packed;          /* tokens of all sequences one behind the other: dense is [token, head, channel] */
    const void *pointer;
} attn_tensor_row;

/* Types and strides of every tensor of a table: defaults filled in, rules checked, byte extents known to fit. */
attn_status attn_tensor_list_resolve(attn_tensor_row *tensors, int count, attn_error *error);

/* Types and strides of every tensor that the problem uses: defaults filled in, rules checked, byte extents known to fit. */
attn_status attn_tensors_resolve(attn_problem *problem, attn_error *error);

/* No pointer that is used is NULL, and no output is the same pointer as another tensor. */
attn_status attn_tensors_check_pointers(const attn_problem *problem, const attn_args *args, attn_error *error);

/* Packed tensors by the tokens that cu_seqlens, which is sound, says there are: extents fit, and no output overlaps itself. */
attn_status attn_tensors_check_packed(const attn_problem *problem, const attn_args *args, attn_error *error);

#endif
