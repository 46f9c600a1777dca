/* SPDX-License-Identifier: MIT
 * exchange.h - nodes of sums whose terms come from several ranks travel to where these are completed. */
#ifndef ATTN_DISTRIBUTED_EXCHANGE_H
#define ATTN_DISTRIBUTED_EXCHANGE_H

#include "sums.h"

/* A node of a sum whose terms all come from some ranks; with any_order, all of these, and `number` says how many. */
typedef struct attn_visited {
    const attn_sum *sum;
    int level;
    int64_t number;
    attn_range ranks;
    int with;         /* the rank at the other end of its message */
    attn_range units; /* of ATTN_SUM_ROW, that are exchanged (halving.h) */
} attn_visited;

/* Calls for the largest nodes whose terms all come from of->ranks, in an order that both ends of a message know; their level and
 * number are filled in. */
void attn_exchange_visit(attn_running *r, const attn_visited *of, void (*call)(attn_running *r, const attn_visited *node));
/* Takes a node out of its sum; -1: it is not there. */
int64_t attn_exchange_remove(attn_running *r, const attn_visited *node);
/* Waits for all messages, and gives back the nodes of r->going. */
void attn_exchange_wait(attn_running *r, attn_node_kind kind);

/* After step `step`: what its keys got goes to their owner, and what this rank's keys got elsewhere comes. */
void attn_exchange_columns(attn_running *r, int step);
/* The same of all steps at once. */
void attn_exchange_all_columns(attn_running *r);

/* Completes and stores shared results, which all ranks get. */
void attn_exchange_shared(attn_running *r);

#endif
