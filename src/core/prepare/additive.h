/* SPDX-License-Identifier: MIT
 *
 * additive.h - additive scores outside the walk: w in the kernel's layout, and its gradient.  Queries and keys are prepared in the
 * walk, tile by tile and block by block (tile/steps.h), so no memory grows with the sequence.
 */
#ifndef ATTN_PREPARE_ADDITIVE_H
#define ATTN_PREPARE_ADDITIVE_H

#include "../task/walk.h"

/* The problem that the walk solves, with the w that attn_additive_scale_weights makes.  Returns 0 if a size overflows. */
int attn_additive_problem(attn_resolved *prepared, attn_dtype compute);

/* Converts the caller's w to the kernel's layout, one after another for each head that has its own. */
void attn_additive_scale_weights(const attn_resolved *problem, attn_dtype compute, const void *w, void *to);

/* Backward, after the walk: the sums of all heads and batch entries, in order, become grad_w and each head's gradient of the scale
 * (in its sums of batch entry 0). */
void attn_additive_sum(const attn_walk *walk, const attn_args *args, char *shared);

#endif
