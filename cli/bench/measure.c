/* SPDX-License-Identifier: MIT
 * measure.c - interleaves the contenders with each other and with the ceilings. */
#include "measure.h"

#include "cli/base/progress.h"
#include "clock.h"

static contender *least_measured(contender *contenders, int count)
{
    contender *least = contenders;
    for (int k = 1; k < count; k++)
        if (contenders[k].spent < least->spent) least = &contenders[k];
    return least;
}

static double least_of(double a, double b) { return a < b ? a : b; }

static void show(progress *bar, const contender *contenders, int count, double seconds)
{
    double done = 0;
    for (int k = 0; k < count; k++) done += least_of(contenders[k].spent, seconds);
    progress_show(bar, (int64_t)(1000 * done), (int64_t)(1000 * seconds * count));
}

/* Memory is read as the problem has it: the same pages, and for as long.  What lies in a cache is alike everywhere. */
static void sample_stream(contender *c, const rivals *r, ceilings *all)
{
    const data *d = &c->data;
    if (!r->reads) return;
    if (r->stream->kind == CEILING_MEMORY && d->blocks)
        series_add(&c->stream, clock_seconds(), ceiling_read_tensors(all, d->blocks, d->block, d->block_bytes));
    else ceiling_sample(all, r->stream);
}

void measure(contender *contenders, const rivals *against, int count, ceilings *all, double seconds, int quiet)
{
    progress bar;
    progress_begin(&bar, "measuring", quiet);
    for (;;) {
        contender *c = least_measured(contenders, count);
        if (c->seconds.count && c->spent >= seconds) break;
        const rivals *r = &against[c - contenders];
        if (r->fma) ceiling_sample(all, r->fma);
        sample_stream(c, r, all);
        contender_sample(c);
        ceilings_refresh(all);
        show(&bar, contenders, count, seconds);
    }
    /* what the last samples are compared with */
    for (int n = 0; n < NEARBY; n++)
        for (int k = 0; k < all->count; k++) ceiling_sample(all, &all->list[k]);
    progress_end(&bar);
}
