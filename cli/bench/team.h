/* SPDX-License-Identifier: MIT
 *
 * team.h - threads for the ceiling loops.  They are started once, so that each finds in its caches what it left there.
 */
#ifndef ATTN_CLI_BENCH_TEAM_H
#define ATTN_CLI_BENCH_TEAM_H

#include <stdint.h>

typedef struct team_time {
    double elapsed;  /* seconds from the first begin to the last end */
    double rate_sum; /* sum over the threads of 1 / (seconds of its own work) */
} team_time;

/* Starts the team; call once, before any run.  Returns its number of threads, the calling one included: at most `threads`. */
int team_create(int threads);

/* Calls work(context, thread) for thread = 0 .. team's size - 1, each on its own thread, all beginning at the same moment.  Without
 * a team: on the calling thread. */
team_time team_run(void (*work)(void *context, int thread), void *context);

/* Ends the threads. */
void team_destroy(void);

#endif
