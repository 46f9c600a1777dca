/* SPDX-License-Identifier: MIT
 * threads.c - tasks are claimed from a counter, so unequal tasks balance; who runs a task changes nothing in its result. */
#include "threads.h"

#include <stdatomic.h>

#ifdef _OPENMP
#include <omp.h>
#endif

typedef struct crew {
    atomic_llong next;
    int64_t tasks;
    void (*run)(void *context, int64_t worker, int64_t task);
    void *context;
} crew;

static void work(void *body_context, int64_t worker)
{
    crew *c = body_context;
    for (;;) {
        int64_t task = atomic_fetch_add_explicit(&c->next, 1, memory_order_relaxed);
        if (task >= c->tasks) return;
        c->run(c->context, worker, task);
    }
}

static void default_parallel_for(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context)
{
    (void)context;
#ifdef _OPENMP
#pragma omp parallel for num_threads((int)n) schedule(static, 1)
#endif
    for (int64_t i = 0; i < n; i++) body(body_context, i);
}

int attn_threads_default(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

void attn_threads_run(attn_parallel_for *parallel_for, void *parallel_context, int workers, int64_t tasks,
                      void (*run)(void *context, int64_t worker, int64_t task), void *context)
{
    crew c;
    atomic_init(&c.next, 0);
    c.tasks = tasks;
    c.run = run;
    c.context = context;
    if (workers <= 1) {
        work(&c, 0);
    } else {
        (parallel_for ? parallel_for : default_parallel_for)(parallel_context, workers, work, &c);
    }
}
