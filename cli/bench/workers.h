/* SPDX-License-Identifier: MIT
 *
 * workers.h - threads for the ceiling loops.  They are started once, so that each finds in its caches what it left there.
 */
#ifndef ATTN_CLI_BENCH_WORKERS_H
#define ATTN_CLI_BENCH_WORKERS_H

#include <stdint.h>

typedef struct workers_time {
    double elapsed;  /* seconds from the first begin to the last end */
    double rate_sum; /* sum over the threads of 1 / (seconds of its own work) */
} workers_time;

/* Starts the workers; call once, before any run.  Returns their number, the calling one included: at most `threads`. */
int workers_create(int threads);

/* How many there are, the calling thread included: 1 before workers_create. */
int workers_count(void);

/* Calls work(context, thread) for each thread = 0 .. workers_create's result - 1 on a thread of its own, all beginning at the same
 * moment.  Without workers: on the calling thread. */
workers_time workers_run(void (*work)(void *context, int thread), void *context);

/* Ends the threads. */
void workers_destroy(void);

#endif
