/* SPDX-License-Identifier: MIT
 *
 * masks.h - the masks that sparse= names in a check: the library gets them as fields and tensors, the reference by their
 * definitions.
 */
#ifndef ATTN_TESTING_CASE_MASKS_H
#define ATTN_TESTING_CASE_MASKS_H

#include "call.h"
#include "testing/problem/sparse.h"

/* Places and writes ranges and lists of blocks.  Returns 0 if out of memory. */
int masks_place(check_call *call, const check_case *c, const sparse_mask *mask);

/* The expected results, from the problem without these masks, and from their definitions.  Returns 0 if out of memory. */
int masks_expect(check_call *call, const check_case *c);

/* Clears the elements of the placed mask that the matrix of *mask hides: after masks_expect, which needs none of it. */
void masks_hide(check_call *call, const sparse_mask *mask);

#endif
