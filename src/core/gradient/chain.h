/* SPDX-License-Identifier: MIT
 *
 * chain.h - the ordered accumulation pipeline: how walks that sum over queries are divided into tasks.  A key head has one dK and
 * one dV, to which groups of query tiles, of all the query heads of its group, add one after another: always in the order of the
 * queries, whatever the threads, the batch and the lengths.
 *
 * Many key heads: each task has one.  Few: tasks follow each other over the keys.  A group enters the next span of keys when the
 * group before has left it, so no two groups work on the same keys, and each key receives its sums in the order of groups, with as
 * many tasks as threads and no memory that grows with them.
 */
#ifndef ATTN_GRADIENT_CHAIN_H
#define ATTN_GRADIENT_CHAIN_H

#include "gradient.h"
#include "split_sums.h"

/* The stages of a group of tiles: `count` of them are opened from `number` on, walked over all keys in order, and finished.
 * owns_head: the task owns the key head, and continues with the next tiles, or the next key head. */
typedef struct attn_chain_steps {
    void (*open)(const attn_task *task, int64_t number, int64_t count, int owns_head, attn_gradient_group *group,
                 const attn_split_sums *to);
    void (*walk)(const attn_task *task, attn_gradient_group *group, attn_interval keys, const attn_split_sums *to);
    void (*finish)(const attn_task *task, attn_gradient_group *group, const attn_split_sums *to);
} attn_chain_steps;

/* Runs every query tile of every head; stores the sums of each key head. */
void attn_chain_run(const attn_walk *walk, const attn_args *args, void *workspace, const attn_chain_steps *steps,
                    const attn_split_sums_target *target);

#endif
