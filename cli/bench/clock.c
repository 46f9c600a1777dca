/* SPDX-License-Identifier: MIT
 * clock.c - wall time, or CPU time of this thread. */
#include "clock.h"

#include <time.h>

static bench_clock chosen = CLOCK_WALL;

void clock_choose(bench_clock clock) { chosen = clock; }

const char *clock_name(void) { return chosen == CLOCK_CPU ? "cpu" : "wall"; }

double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(chosen == CLOCK_CPU ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
