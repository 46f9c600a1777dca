/* SPDX-License-Identifier: MIT
 * team.c - one function on every thread, timed on each. */
#include "team.h"

#include "clock.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* What one thread found, taken into the whole. */
static void join(team_time *time, double *first, double *last, double begin, double end)
{
    if (*first == 0 || begin < *first) *first = begin;
    if (end > *last) *last = end;
    if (end > begin) time->rate_sum += 1 / (end - begin);
}

team_time team_run(int threads, void (*work)(void *context, int thread), void *context)
{
    team_time time = {0};
    double first = 0, last = 0;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
    {
        const int thread = omp_get_thread_num();
#pragma omp barrier
        const double begin = clock_seconds();
        work(context, thread);
        const double end = clock_seconds();
#pragma omp critical
        join(&time, &first, &last, begin, end);
    }
#else
    (void)threads;
    const double begin = clock_seconds();
    work(context, 0);
    join(&time, &first, &last, begin, clock_seconds());
#endif
    time.whole = last - first;
    return time;
}

int team_size(int threads)
{
    int size = 1;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#pragma omp single
    size = omp_get_num_threads();
#else
    (void)threads;
#endif
    return size;
}
