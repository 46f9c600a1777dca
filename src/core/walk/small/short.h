/* SPDX-License-Identifier: MIT
 *
 * short.h - short heads: a task has a head, and keeps all its scores until it is done.  For sequences with nothing but a causal
 * mask; queries stay rows and keys lie in the lanes, other than in the walk over tiles (attn_short_kernel in kernel.h says why).
 * Forward without a mask has a tile's scores at a time, with queries in the lanes, but makes O in rows too.
 */
#ifndef ATTN_WALK_SMALL_SHORT_H
#define ATTN_WALK_SMALL_SHORT_H

#include "../../task/walk.h"

/* Which sequences of the problem go this way: by head sizes, types and options alone, not by the batch around them, nor by threads.
 * Returns 0 if none does. */
int attn_short_limits(const attn_resolved *problem, const attn_kernel_row *row, attn_small *limits);
/* In place of what attn_walk_init does for tiles; returns 0 if a size overflows. */
int attn_short_init(attn_walk *walk, int64_t heads, int threads);

void attn_sched_short_forward(const attn_walk *walk, const attn_args *args, void *workspace);
void attn_sched_short_backward(const attn_walk *walk, const attn_args *args, void *workspace);

#endif
