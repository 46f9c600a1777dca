/* SPDX-License-Identifier: MIT
 *
 * progress.c - a progress bar on standard error for work of more than a second. */
#include "progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BAR_WIDTH = 30 };
static const double patience = 1, pause_between = 0.1; /* seconds */

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_begin(progress *p, const char *label, int quiet)
{
    const char *eager = getenv("ATTN_PROGRESS");
    *p = (progress){.label = label,
                    .shown = !quiet && isatty(STDERR_FILENO),
                    .eager = eager && strcmp(eager, "1") == 0,
                    .begin = seconds_now()};
}

void progress_show(progress *p, int64_t done, int64_t total)
{
    if (!p->shown || total <= 0) return;
    double now = seconds_now();
    if ((now - p->begin < patience && !p->eager) || now - p->last < pause_between) return;
    p->last = now;
    char bar[BAR_WIDTH + 1];
    int filled = (int)((double)done / (double)total * BAR_WIDTH);
    for (int k = 0; k < BAR_WIDTH; k++) bar[k] = k < filled ? '#' : '.';
    bar[BAR_WIDTH] = 0;
    fprintf(stderr, "\r%s [%s] %3.0f %%", p->label, bar, 100.0 * (double)done / (double)total);
    fflush(stderr);
}

void progress_end(progress *p)
{
    if (p->last > 0) fprintf(stderr, "\r%60s\r", "");
}
