/* SPDX-License-Identifier: MIT
 * nodes.c - one counter for each node. */
#define _GNU_SOURCE /* syscall */
#include "nodes.h"

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

void attn_node_begin(attn_node_counters *counters, const attn_node_items *items, int64_t each)
{
    counters->nodes = items->nodes;
    for (int k = 0; k <= items->nodes; k++) {
        atomic_init(&counters->of[k].next, items->first[k] * each);
        counters->of[k].end = items->first[k + 1] * each;
    }
}

static int64_t left_of(attn_node_counters *counters, int node)
{
    return counters->of[node].end - atomic_load_explicit(&counters->of[node].next, memory_order_relaxed);
}

static int64_t take_of(attn_node_counters *counters, int node)
{
    if (left_of(counters, node) <= 0) return -1;
    const int64_t task = atomic_fetch_add_explicit(&counters->of[node].next, 1, memory_order_relaxed);
    return task < counters->of[node].end ? task : -1;
}

int64_t attn_node_take(attn_node_counters *counters, int node)
{
    int64_t task = node < 0 ? -1 : take_of(counters, node);
    if (task < 0) task = take_of(counters, counters->nodes);
    while (task < 0) {
        int most = 0;
        for (int k = 1; k < counters->nodes; k++)
            if (left_of(counters, k) > left_of(counters, most)) most = k;
        if (left_of(counters, most) <= 0) return -1;
        task = take_of(counters, most);
    }
    return task;
}

/* The node of the CPU that the calling thread is on; -1 where the system does not tell. */
static int current(void)
{
#ifdef __linux__
    unsigned cpu = 0, node = 0;
    if (syscall(SYS_getcpu, &cpu, &node, NULL) == 0 && node < ATTN_MAX_NODES) return (int)node;
#endif
    return -1;
}

int attn_node_of_worker(const attn_node_items *items, int64_t worker)
{
    const int node = items->workers == 0 ? current() : worker < items->workers ? items->worker_nodes[worker] : -1;
    return node < items->nodes ? node : -1;
}
