/* SPDX-License-Identifier: MIT
 *
 * progress.h - a bar on standard error for work of more than a second; nothing where that is not a terminal. */
#ifndef ATTN_CLI_BASE_PROGRESS_H
#define ATTN_CLI_BASE_PROGRESS_H

#include <stdint.h>

typedef struct progress {
    const char *label;
    int shown;          /* 1: a terminal, and not --quiet */
    int eager;          /* 1: ATTN_PROGRESS=1 asks for a bar from the first step on, however short the work */
    double begin, last; /* seconds; last: when it was drawn, 0 if never */
} progress;

/* label is borrowed. */
void progress_begin(progress *p, const char *label, int quiet);
/* Cheap enough to be called for every tile; from one thread at a time. */
void progress_show(progress *p, int64_t done, int64_t total);
/* Takes the bar away. */
void progress_end(progress *p);

/* Seconds of a clock that only goes forward. */
double seconds_now(void);

#endif
