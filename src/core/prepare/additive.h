/* SPDX-License-Identifier: MIT
 *
 * additive.h - what additive scores need beside the walk's own steps: w as their kernel takes it, and its gradient.  Queries and
 * keys are prepared in the walk, tile by tile and block by block (task.h), so no memory grows with the sequence.
 */
#ifndef ATTN_PREPARE_ADDITIVE_H
#define ATTN_PREPARE_ADDITIVE_H

#include "../task/walk.h"

/* The problem that the walk solves: its w is the one that attn_additive_weigh makes.  Returns 0 if a size overflows. */
int attn_additive_problem(attn_resolved *prepared, attn_dtype compute);

/* w of the caller's problem as the kernel takes it, one after another for each head that has its own. */
void attn_additive_weigh(const attn_resolved *problem, attn_dtype compute, const void *w, void *to);

/* Backward, after the walk: the sums of all heads and batch entries, in order, become grad_w and each head's gradient of the
 * scale (in the sums of its first split and batch entry). */
void attn_additive_sum(const attn_walk *walk, const attn_args *args, char *shared);

#endif
