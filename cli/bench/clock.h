/* SPDX-License-Identifier: MIT
 *
 * clock.h - the clock that all samples are taken with.
 *
 * The CPU clock stands still while the thread waits for a core, so on a busy machine it shows what the code needs.  It counts the
 * calling thread alone: it is for one thread.
 */
#ifndef ATTN_CLI_BENCH_CLOCK_H
#define ATTN_CLI_BENCH_CLOCK_H

typedef enum bench_clock { CLOCK_WALL, CLOCK_CPU } bench_clock;

/* Once, before anything is timed; the wall clock without it. */
void clock_choose(bench_clock clock);
/* "wall", "cpu" */
const char *clock_name(void);
/* Seconds of it; only differences mean something. */
double clock_seconds(void);

#endif
