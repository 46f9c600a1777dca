/* SPDX-License-Identifier: MIT
 * table_sums.h - the gradient of a bias by distance. */
#ifndef ATTN_GRADIENT_TABLE_SUMS_H
#define ATTN_GRADIENT_TABLE_SUMS_H

#include "../tile/steps.h"
#include "plan.h"

/* begin zeroes a head's sums by distance; those of a worker's tile are cleared, accumulate dS of its blocks, and are added to the
 * head's. */
void attn_table_sums_begin(const attn_walk *walk, int64_t head, char *shared);
void attn_table_sums_clear(const attn_task *task, int64_t place);
void attn_table_sums_add(const attn_task *task, const attn_tile *tile, const attn_keys *keys, const void *dS);
void attn_table_sums_keep(const attn_task *task, int64_t place, char *shared);

/* The gradient of every table, from the sums of all heads in order. */
void attn_tables_finish(const attn_walk *walk, const attn_args *args, char *shared);

#endif
