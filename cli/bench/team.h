/* SPDX-License-Identifier: MIT
 *
 * team.h - the threads of the library, for the loops that are not attention: the same number, and with OpenMP the same threads.
 */
#ifndef ATTN_CLI_BENCH_TEAM_H
#define ATTN_CLI_BENCH_TEAM_H

#include <stdint.h>

typedef struct team_time {
    double whole;    /* seconds from the first begin to the last end */
    double rate_sum; /* sum over the threads of 1 / (seconds of its own work) */
} team_time;

/* Calls work(context, thread) for thread = 0 .. threads-1, each on its own thread, all beginning at the same moment. */
team_time team_run(int threads, void (*work)(void *context, int thread), void *context);

/* How many threads team_run really has. */
int team_size(int threads);

#endif
