/* SPDX-License-Identifier: MIT
 * threads.c - tasks are claimed from a counter, so unequal tasks balance; a task's result does not depend on which thread runs
 * it. */
#include "threads.h"

#include <stdatomic.h>

#include "pool.h"

typedef struct shared_tasks {
    atomic_llong next;
    int64_t tasks;
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

/* Of attn_threads_lend. */
static _Thread_local attn_parallel_for *lent;
static _Thread_local void *lent_context;

void attn_threads_lend(attn_parallel_for *parallel_for, void *parallel_context)
{
    lent = parallel_for;
    lent_context = parallel_context;
}

void attn_threads_run(attn_parallel_for *parallel_for, void *parallel_context, int workers, int64_t tasks,
                      void (*run)(void *context, int64_t worker, int64_t task), void *context)
{
    shared_tasks c;
    if (workers <= 1) { /* without the counter, which costs as much as a task of a small call */
        for (int64_t task = 0; task < tasks; task++) run(context, 0, task);
        return;
    }
    atomic_init(&c.next, 0);
    c.tasks = tasks;
    c.run = run;
    c.context = context;
    if (lent) lent(lent_context, workers, work, &c);
    else if (parallel_for) parallel_for(parallel_context, workers, work, &c);
    else attn_pool_run(workers, work, &c);
}
