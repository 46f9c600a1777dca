/* SPDX-License-Identifier: MIT
 *
 * named_masks.h - --sparse: masks by name beside those of a file. */
#ifndef ATTN_CLI_INPUT_NAMED_MASKS_H
#define ATTN_CLI_INPUT_NAMED_MASKS_H

#include "testing/problem/sparse.h"
#include "testing/problem/tensors.h"

/* The masks that a flag names, and what their tensors point to. */
typedef struct named_masks {
    sparse_mask mask;
    unsigned char *both;       /* a mask of the file with theirs; NULL: none */
    unsigned char *block_rows; /* of named_masks_block_rows */
} named_masks;

/* Puts them into the problem and tensors of the spec without sparse=, whose mask, if there is one, has its data.  Errors of
 * sparse_make.  Release with named_masks_free, also after a failure, once nothing uses the tensors. */
attn_status named_masks_put(named_masks *masks, const problem_spec *spec, attn_problem *problem, attn_tensors *tensors,
                            attn_error *error);
void named_masks_free(named_masks *masks);

/* Turns lists of blocks into a block mask with a row for each query, which can be cut between any two (compute/slice.h). */
void named_masks_block_rows(named_masks *masks, attn_problem *problem, attn_tensors *tensors);

#endif
