/* SPDX-License-Identifier: MIT
 * threads.c - tasks are claimed from a counter, so unequal tasks balance; a task's result does not depend on which thread runs
 * it. */
#include "threads.h"

#include <stdatomic.h>

#include "pool.h"

typedef struct shared_tasks {
    atomic_llong next;
    int64_t tasks;
    const attn_node_items *items; /* with counters, in place of `next` */
    attn_node_counters *counters;
    void (*run)(void *context, int64_t worker, int64_t task);
    void *context;
} shared_tasks;

static void work(void *body_context, int64_t worker)
{
    shared_tasks *c = body_context;
    for (;;) {
        int64_t task = atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
        if (task >= c->tasks) return;
        c->run(c->context, worker, task);
    }
}

static void work_near(void *body_context, int64_t worker)
{
    shared_tasks *c = body_context;
    const int node = attn_node_of_worker(c->items, worker);
    for (int64_t task; (task = attn_node_take(c->counters, node)) >= 0;) c->run(c->context, worker, task);
}

/* Of attn_threads_lend. */
static _Thread_local attn_parallel_for *lent;
static _Thread_local void *lent_context;

void attn_threads_lend(attn_parallel_for *parallel_for, void *parallel_context)
{
    lent = parallel_for;
    lent_context = parallel_context;
}

static void spread(attn_parallel_for *parallel_for, void *parallel_context, int workers,
                   void (*body)(void *context, int64_t worker), shared_tasks *c)
{
    if (lent) lent(lent_context, workers, body, c);
    else if (parallel_for) parallel_for(parallel_context, workers, body, c);
    else attn_pool_run(workers, body, c);
}

void attn_threads_run(attn_parallel_for *parallel_for, void *parallel_context, int workers, int64_t tasks,
                      void (*run)(void *context, int64_t worker, int64_t task), void *context)
{
    shared_tasks c = {.tasks = tasks, .run = run, .context = context};
    if (workers <= 1) { /* without the counter, which costs as much as a task of a small call */
        for (int64_t task = 0; task < tasks; task++) run(context, 0, task);
        return;
    }
    atomic_init(&c.next, 0);
    spread(parallel_for, parallel_context, workers, work, &c);
}

void attn_threads_run_near(const attn_node_items *items, int64_t each, attn_parallel_for *parallel_for, void *parallel_context,
                           int workers, void (*run)(void *context, int64_t worker, int64_t task), void *context)
{
    attn_node_counters counters;
    shared_tasks c = {.run = run, .context = context, .items = items, .counters = &counters};
    attn_node_begin(&counters, items, each);
    if (workers <= 1) work_near(&c, 0);
    else spread(parallel_for, parallel_context, workers, work_near, &c);
}
