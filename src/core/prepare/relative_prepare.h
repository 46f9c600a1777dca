/* SPDX-License-Identifier: MIT
 * relative_prepare.h - relative terms before and after a walk. */
#ifndef ATTN_PREPARE_RELATIVE_PREPARE_H
#define ATTN_PREPARE_RELATIVE_PREPARE_H

#include "../tile/plan.h"

/* The problem that the walk solves: with u or v, its queries are q + u.  Returns 0 if a size overflows. */
int attn_relative_problem(const attn_resolved *problem, attn_resolved *prepared);
/* Sizes the tables.  plan: with its grid of tiles set.  Returns 0 if a size overflows. */
int attn_relative_init(attn_tile_walk *plan);

/* Expands the tables and computes the queries.  *prepared: the walk's arguments; memory: plan->relative.bytes, 64-byte aligned. */
void attn_relative_begin(const attn_tile_walk *plan, const attn_resolved *problem, const attn_args *args, void *memory,
                         attn_args *prepared);
/* The caller's gradients of q, u and v from those of q + u and q + v.  problem, args: the caller's. */
void attn_relative_finish(const attn_tile_walk *plan, const attn_resolved *problem, const attn_args *args,
                          const attn_args *prepared);

#endif
