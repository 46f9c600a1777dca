/* SPDX-License-Identifier: MIT
 *
 * progress.h - a progress bar on standard error for work of more than a second; none if that is not a terminal. */
#ifndef ATTN_CLI_BASE_PROGRESS_H
#define ATTN_CLI_BASE_PROGRESS_H

#include <stdint.h>

typedef struct progress {
    const char *label;
    int shown;          /* 1: a terminal, and not --quiet */
    int eager;          /* 1: ATTN_PROGRESS=1 requests a bar from the first step, however short the work */
    double begin, last; /* seconds; last: when it was drawn, 0 if never */
} progress;

/* label is borrowed. */
void progress_begin(progress *p, const char *label, int quiet);
/* Cheap enough to be called for every tile; from one thread at a time. */
void progress_show(progress *p, int64_t done, int64_t total);
/* Erases the bar. */
void progress_end(progress *p);

/* Seconds of a monotonic clock. */
double seconds_now(void);

#endif
