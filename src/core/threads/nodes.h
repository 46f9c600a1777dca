/* SPDX-License-Identifier: MIT
 *
 * nodes.h - tasks by the node of memory (NUMA) that their keys are on: a worker takes those of its own node, then those of no node,
 * then those of the node that has most left.  So memory of another node is only read by who would be idle. */
#ifndef ATTN_THREADS_NODES_H
#define ATTN_THREADS_NODES_H

#include <stdatomic.h>
#include <stdint.h>

enum { ATTN_MAX_NODES = 64 };

/* Items in the order of their nodes. */
typedef struct attn_node_items {
    int nodes;                         /* 0: none is told apart */
    int workers;                       /* 0: a worker's node is that of the CPU it runs on */
    const int8_t *worker_nodes;        /* [workers], -1: none */
    int64_t first[ATTN_MAX_NODES + 2]; /* of each node, of those without one, and the end */
} attn_node_items;

/* How far the tasks of each node, and last those of none, have been taken. */
typedef struct attn_node_counters {
    int nodes;
    struct attn_node_counter {
        _Alignas(64) atomic_llong next; /* a cache line each */
        int64_t end;
    } of[ATTN_MAX_NODES + 1];
} attn_node_counters;

/* Each item has `each` tasks, in a row. */
void attn_node_begin(attn_node_counters *counters, const attn_node_items *items, int64_t each);

/* The next task for a worker on a node (-1: none); -1 if none is left. */
int64_t attn_node_take(attn_node_counters *counters, int node);

/* The node of a worker that calls this; -1 if it is none of `items`. */
int attn_node_of_worker(const attn_node_items *items, int64_t worker);

#endif
