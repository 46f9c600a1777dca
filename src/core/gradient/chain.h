/* SPDX-License-Identifier: MIT
 *
 * chain.h - how the walks that sum over queries are dealt to tasks.  A key head has one dK and one dV, to which groups of its query
 * tiles, of all the query heads of its group, add one after the other: there is one order, that of the queries, whatever the
 * threads, the batch and the lengths.
 *
 * Many key heads: a task has one.  Few: tasks follow each other over the keys.  A group goes on to the next span of keys when the
 * group before has left it, so no two of them are at the same keys, and each key gets its sums in the order of groups, with as many
 * tasks as there are threads and no memory that grows with them.
 */
#ifndef ATTN_GRADIENT_CHAIN_H
#define ATTN_GRADIENT_CHAIN_H

#include "gradient.h"
#include "split_sums.h"

/* What happens to a group of tiles: `count` of them are opened from `number` on, taken over all keys in order, and closed.  alone:
 * the task has the key head for itself, and goes on with the next tiles, or the next key head. */
typedef struct attn_chain_steps {
    void (*open)(const attn_task *task, int64_t number, int64_t count, int alone, attn_gradient_group *group,
                 const attn_split_sums *to);
    void (*walk)(const attn_task *task, attn_gradient_group *group, attn_interval keys, const attn_split_sums *to);
    void (*finish)(const attn_task *task, attn_gradient_group *group, const attn_split_sums *to);
} attn_chain_steps;

/* Runs every query tile of every head; stores what each key head's queries add up to. */
void attn_chain_run(const attn_walk *walk, const attn_args *args, void *workspace, const attn_chain_steps *steps,
                    const attn_split_sums_target *target);

#endif
