/* SPDX-License-Identifier: MIT
 * relative_sums.h - the gradients of relative tables. */
#ifndef ATTN_GRADIENT_RELATIVE_SUMS_H
#define ATTN_GRADIENT_RELATIVE_SUMS_H

#include "../tile/relative.h"
#include "plan.h"

enum { ATTN_SUMS_HEAD = 64 }; /* bytes of header before the sums of the tables' gradients */

/* Sizes the sums.  plan: with its relative tables.  Returns 0 if a size overflows. */
int attn_relative_sums_init(attn_sum_walk *plan);

/* Backward: sums[row] += sum of X[j][i] times row i of `panels` over the pairs at its distance.  sums: for one table, with a header
 * of ATTN_SUMS_HEAD bytes that records which rows were touched. */
void attn_relative_sum(const attn_task *task, const attn_tile *tile, const attn_keys *keys, attn_relative_side side, const void *X,
                       int nan_safe, const void *panels, void *sums);

/* Backward: begin zeroes the sums; join adds a group's sums to those of its key head and zeroes them again. */
void attn_relative_sums_begin(const attn_walk *walk, void *sums);
void attn_relative_join(const attn_walk *walk, void *sums, void *to);

/* 1 if all query heads of a key head share one table. */
int attn_relative_split_sums(const attn_walk *walk);

/* Backward: sums of a key head's tables (for head k of its group, or shared by all), at place `place`. */
void *attn_relative_sums_at(const attn_walk *walk, char *shared, int64_t place, int64_t k);
void attn_relative_sums_clear(const attn_walk *walk, char *shared, int64_t place);
void attn_relative_totals_clear(const attn_walk *walk, char *shared);
/* Adds place `place`, the sums of key head `key_head`, to the totals of table `table`. */
void attn_relative_totals_add(const attn_walk *walk, char *shared, int64_t table, int64_t place, int64_t key_head);
void attn_relative_totals_store(const attn_walk *walk, const attn_args *args, char *shared);

#endif
