/* SPDX-License-Identifier: MIT
 *
 * schedule.h - a ragged batch as work items: how each walk of a plan cuts its sequences, for one step.  Made once by
 * plan/schedule.c from lengths alone, and read by every execution that is given it.
 *
 * A walk cuts a sequence into pieces (decode: blocks of keys; tiles: tiles of queries), of which an item has one or more in a row.
 * Items are in descending order of cost, so that no long one runs alone at the end, and before that in the order of nodes if these
 * are told apart; a task is an item of one head.
 */
#ifndef ATTN_TASK_SCHEDULE_H
#define ATTN_TASK_SCHEDULE_H

#include "../threads/nodes.h"
#include "../visible/visible.h"
#include "walk.h"

typedef struct attn_item {
    int64_t entry;        /* of the batch */
    int64_t first, count; /* pieces */
    int64_t cost;         /* of a task, in queries times keys; at least 1 */
    int64_t sharers;      /* above 1: those of so many entries from this one on, which share these keys; others among them do not */
} attn_item;

/* A batch entry. */
typedef struct attn_scheduled_entry {
    attn_tokens tokens;
    int64_t listed; /* the most keys on the list of a key head; 0 without lists */
    int64_t offset; /* of its queries among the keys */
    int64_t part;   /* of the plan; -1: it has no queries */
    int64_t node;   /* of its pages; -1: none */
    int64_t pieces, items;
    int64_t shared;  /* of the pieces: the first ones, in items of one piece with other entries */
    int64_t skipped; /* decode: blocks that no query sees between the first one, which is kept, and the rest */
    int64_t before;  /* units (attn_walk_cut) of the entries of this part before it */
} attn_scheduled_entry;

/* What one part of a plan does; attn_args has it during an execution. */
typedef struct attn_part_schedule {
    const attn_item *items;
    int64_t count;
    int64_t units; /* of all its entries */
    int64_t part;  /* its number */
    const attn_scheduled_entry *entries;
    attn_node_items of_nodes;
} attn_part_schedule;

/* The number that task `number` of a call has in a batch whose entries all have `each` tasks. */
static inline int64_t attn_scheduled_number(const attn_args *args, int64_t number, int64_t each)
{
    return args->schedule ? args->schedule->items[number / each].entry * each + number % each : number;
}

/*
 * Spreads the tasks of a call over the walk's workers: those of the plan, or `each` for every item of a schedule.
 *
 *      for (int64_t task = 0; task < tasks; task++) run(context, worker, task);
 */
void attn_scheduled_run(const attn_walk *walk, const attn_args *args, int64_t planned, int64_t each,
                        void (*run)(void *context, int64_t worker, int64_t task), void *context);

#endif
