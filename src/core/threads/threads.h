/* SPDX-License-Identifier: MIT
 * threads.h - workers that take tasks: one parallel region per call. */
#ifndef ATTN_THREADS_THREADS_H
#define ATTN_THREADS_THREADS_H

#include "attn/attn.h"

#include "nodes.h"

/*
 * Equals, with the calls spread over at most `workers` workers,
 *
 *      for (int64_t task = 0; task < tasks; task++) run(context, worker, task);
 *
 * Each worker number 0 .. workers-1 is on one thread at a time.  parallel_for NULL: the library's own threads (pool.h).
 */
void attn_threads_run(attn_parallel_for *parallel_for, void *parallel_context, int workers, int64_t tasks,
                      void (*run)(void *context, int64_t worker, int64_t task), void *context);

/* The same for the tasks of items, `each` of every one, in the order that their nodes ask for. */
void attn_threads_run_near(const attn_node_items *items, int64_t each, attn_parallel_for *parallel_for, void *parallel_context,
                           int workers, void (*run)(void *context, int64_t worker, int64_t task), void *context);

/* Makes attn_threads_run on the calling thread use these threads, whatever parallel_for it is given; NULL: no longer. */
void attn_threads_lend(attn_parallel_for *parallel_for, void *parallel_context);

#endif
