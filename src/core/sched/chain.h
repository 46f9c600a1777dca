/* SPDX-License-Identifier: MIT
 *
 * chain.h - the other way to sum over the queries of a key head: one dK and one dV for all of them, to which groups of tiles add
 * one after the other.  Tasks follow each other over the keys: a group goes on to the next span of keys when the group before has
 * left it.  So no two of them are at the same keys, and each key gets its sums in the order of groups, with as many tasks as there
 * are threads.  Their number changes no bit, and takes no memory that grows with the keys.
 */
#ifndef ATTN_SCHED_CHAIN_H
#define ATTN_SCHED_CHAIN_H

#include "gradient.h"
#include "shares.h"

/* What happens to a group of tiles: `count` of them are opened from `number` on, taken over all keys in order, and closed. */
typedef struct attn_chain_steps {
    void (*open)(const attn_task *task, int64_t number, int64_t count, attn_gradient_group *group);
    void (*walk)(const attn_task *task, attn_gradient_group *group, attn_interval keys, const attn_shares *to);
    void (*finish)(const attn_task *task, attn_gradient_group *group, const attn_shares *to);
} attn_chain_steps;

/* What attn_shares_run does, where walk->chained. */
void attn_chain_run(const attn_walk *walk, const attn_args *args, void *workspace, const attn_chain_steps *steps,
                    const attn_shares_target *target);

#endif
