/* SPDX-License-Identifier: MIT
 * measure.c - interleaves the candidates with each other and with the ceilings. */
#include "measure.h"

#include "cli/base/progress.h"
#include "clock.h"

static candidate *min_measured(candidate *candidates, int count)
{
    candidate *least = candidates;
    for (int k = 1; k < count; k++)
        if (candidates[k].spent < least->spent) least = &candidates[k];
    return least;
}

static double min_of(double a, double b) { return a < b ? a : b; }

static void show(progress *bar, const candidate *candidates, int count, double seconds)
{
    double done = 0;
    for (int k = 0; k < count; k++) done += min_of(candidates[k].spent, seconds);
    progress_show(bar, (int64_t)(1000 * done), (int64_t)(1000 * seconds * count));
}

/* Memory is read as the problem reads it: the same pages, for as long.  In a cache it does not matter which pages they are. */
static void sample_stream(candidate *c, const own_ceilings *r, ceilings *all)
{
    const data *d = &c->data;
    if (!r->reads) return;
    if (r->stream->kind == CEILING_MEMORY && d->blocks)
        series_add(&c->stream, clock_seconds(), ceiling_read_tensors(all, d->blocks, d->block, d->block_bytes));
    else ceiling_sample(all, r->stream);
}

void measure(candidate *candidates, const own_ceilings *against, int count, ceilings *all, double seconds, int quiet)
{
    progress bar;
    progress_begin(&bar, "measuring", quiet);
    for (;;) {
        candidate *c = min_measured(candidates, count);
        if (c->seconds.count && c->spent >= seconds) break;
        const own_ceilings *r = &against[c - candidates];
        if (r->fma) ceiling_sample(all, r->fma);
        sample_stream(c, r, all);
        candidate_sample(c);
        ceilings_refresh(all);
        show(&bar, candidates, count, seconds);
    }
    /* ceilings for the last samples to be compared with */
    for (int n = 0; n < NEARBY; n++)
        for (int k = 0; k < all->count; k++) ceiling_sample(all, &all->list[k]);
    progress_end(&bar);
}
