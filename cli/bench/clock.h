/* SPDX-License-Identifier: MIT
 *
 * clock.h - the clock that all samples are taken with.
 *
 * The CPU clock stops while the thread waits for a core, so on a busy machine it shows what the code needs.  It counts the calling
 * thread only: it is for one thread.
 */
#ifndef ATTN_CLI_BENCH_CLOCK_H
#define ATTN_CLI_BENCH_CLOCK_H

typedef enum bench_clock { CLOCK_WALL, CLOCK_CPU } bench_clock;

/* Call once, before anything is timed; the default is the wall clock. */
void clock_choose(bench_clock clock);
/* "wall", "cpu" */
const char *clock_name(void);
/* Seconds of the chosen clock; only differences are meaningful. */
double clock_seconds(void);

#endif
