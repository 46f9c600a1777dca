/* SPDX-License-Identifier: MIT
 * measure.c - interleaves the candidates with each other and with the ceilings. */
#include "measure.h"

#include "cli/base/progress.h"
#include "clock.h"

/* How much of the limit the candidate has: 1 is all. */
static double share_of(const candidate *c, const measure_limit *limit)
{
    const double samples = (double)c->seconds.count / (double)limit->samples;
    return limit->seconds > 0 && c->spent / limit->seconds < samples ? c->spent / limit->seconds : samples;
}

static candidate *min_measured(candidate *candidates, int count, const measure_limit *limit)
{
    candidate *least = candidates;
    for (int k = 1; k < count; k++)
        if (share_of(&candidates[k], limit) < share_of(least, limit)) least = &candidates[k];
    return least;
}

static void show(progress *bar, const candidate *candidates, int count, const measure_limit *limit)
{
    double done = 0;
    for (int k = 0; k < count; k++) done += share_of(&candidates[k], limit) < 1 ? share_of(&candidates[k], limit) : 1;
    progress_show(bar, (int64_t)(1000 * done), 1000 * (int64_t)count);
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

/* Samples all ceilings; returns how long that took. */
static double sample_all(ceilings *all)
{
    const double begin = clock_seconds();
    for (int k = 0; k < all->count; k++) ceiling_sample(all, &all->list[k]);
    return clock_seconds() - begin;
}

void measure_ceilings(ceilings *all, double seconds)
{
    double spent = 0;
    for (int n = 0; n == 0 || (n < NEARBY && spent < seconds); n++) spent += sample_all(all);
}

void measure(candidate *candidates, const own_ceilings *against, int count, ceilings *all, const measure_limit *limit, int quiet)
{
    progress bar;
    double of_candidates = 0, of_ceilings = 0; /* seconds */
    progress_begin(&bar, "measuring", quiet);
    for (;;) {
        candidate *c = min_measured(candidates, count, limit);
        if (share_of(c, limit) >= 1) break;
        const own_ceilings *r = &against[c - candidates];
        const int affordable = of_ceilings <= of_candidates || !c->seconds.count;
        const double before = c->spent, begin = clock_seconds();
        if (affordable && r->fma) ceiling_sample(all, r->fma);
        if (affordable) sample_stream(c, r, all);
        const double middle = clock_seconds();
        candidate_sample(c);
        const double end = clock_seconds();
        if (affordable) ceilings_refresh(all);
        of_candidates += c->spent - before;
        of_ceilings += middle - begin + clock_seconds() - end;
        show(&bar, candidates, count, limit);
    }
    /* ceilings for the last samples to be compared with */
    for (int n = 0; n == 0 || (n < NEARBY && of_ceilings < of_candidates); n++) of_ceilings += sample_all(all);
    progress_end(&bar);
}
