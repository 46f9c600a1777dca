/* SPDX-License-Identifier: MIT
 * real_threads.c - for tests that compare numbers of threads (linked with test_real_threads, which wraps four functions of the
 * library). Problems that the library would compute by one thread, because they are small, take as many as they may; the calling
 * thread does not begin before another has, which would otherwise often find no work left; and a test that has ended without
 * threads has failed. */
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "attn/attn.h"

enum { MAX_WAIT_NS = 2000000 }; /* (a thread may not come: there may be no memory for it) */

static atomic_long shared_runs;

/* Plans for one thread are made as usual. */
static _Thread_local int is_single;

attn_status __real_attn_plan_create(attn_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
                                    const attn_options *options, attn_error *error);
attn_status __wrap_attn_plan_create(attn_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
                                    const attn_options *options, attn_error *error);
attn_status __wrap_attn_plan_create(attn_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
                                    const attn_options *options, attn_error *error)
{
    is_single = options && options->threads == 1;
    return __real_attn_plan_create(plan, problem, tensors, options, error);
}

/* Of src/core/task/walk.h. */
int __real_attn_is_serial(const void *problem);
int __wrap_attn_is_serial(const void *problem);
int __wrap_attn_is_serial(const void *problem) { return is_single && __real_attn_is_serial(problem); }

/* Of src/core/walk/product/product.h. */
int __wrap_attn_product_is_small(const void *problem);
int __wrap_attn_product_is_small(const void *problem) { return (void)problem, 0; }

typedef struct shared_run {
    void (*body)(void *context, int64_t worker);
    void *context;
    atomic_int others;
} shared_run;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void run_body(void *context, int64_t worker)
{
    shared_run *run = context;
    if (worker) {
        if (atomic_fetch_add(&run->others, 1) == 0) atomic_fetch_add(&shared_runs, 1);
    } else {
        for (const int64_t end = now_ns() + MAX_WAIT_NS; !atomic_load(&run->others) && now_ns() < end;) sched_yield();
    }
    run->body(run->context, worker);
}

/* Of src/core/threads/pool.h. */
void __real_attn_pool_run(int workers, void (*body)(void *, int64_t), void *context);
void __wrap_attn_pool_run(int workers, void (*body)(void *, int64_t), void *context);
void __wrap_attn_pool_run(int workers, void (*body)(void *, int64_t), void *context)
{
    shared_run run = {.body = body, .context = context};
    atomic_init(&run.others, 0);
    __real_attn_pool_run(workers, run_body, &run);
}

__attribute__((destructor)) static void require_threads(void)
{
    if (atomic_load(&shared_runs) > 0) return;
    (void)fflush(NULL);
    (void)fputs("no problem was computed by several threads\n", stderr);
    _exit(1);
}
