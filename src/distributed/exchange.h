/* SPDX-License-Identifier: MIT
 * exchange.h - nodes of sums whose terms come from several ranks travel to where these are completed. */
#ifndef ATTN_DISTRIBUTED_EXCHANGE_H
#define ATTN_DISTRIBUTED_EXCHANGE_H

#include "steps.h"

/* After step `step`: what its keys got goes to their owner, and what this rank's keys got elsewhere comes. */
void attn_exchange_columns(attn_running *r, int step);
/* The same of all steps at once. */
void attn_exchange_all_columns(attn_running *r);

/* Completes and stores shared results, which all ranks get. */
void attn_exchange_shared(attn_running *r);

/* The results of all ranks for part i of queries, whose nodes are in `tree`: rank 0 gets the slot of the complete sum, the others
 * -1. (ATTN_WAY_SPLIT_KEYS) */
int64_t attn_exchange_row(attn_running *r, int64_t i, attn_tree *tree);
/* From rank 0, which has a node in `slot`, to all; on the others the slot that it arrives in. */
int64_t attn_exchange_spread(attn_running *r, attn_node_kind kind, int64_t slot);

#endif
