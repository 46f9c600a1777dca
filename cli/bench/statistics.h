/* SPDX-License-Identifier: MIT
 *
 * statistics.h - series of measurements with the time at which each was taken.
 */
#ifndef ATTN_CLI_BENCH_STATISTICS_H
#define ATTN_CLI_BENCH_STATISTICS_H

#include <stdint.h>

/* Start from zeros. */
typedef struct series {
    double *when; /* rising */
    double *value;
    int64_t count;
    int64_t room;
} series;

void series_add(series *s, double when, double value);
void series_free(series *s);

/* The value that a share `part` (0 to 1) of them lies below, linear between neighbours; NaN where there are none. */
double quantile(const double *values, int64_t count, double part);

/* Their mean; deviation: the root of the mean square from it.  NaN where there are none. */
double series_mean(const series *s, double *deviation);

/* counts[k] of them lie in part k of `parts` equal ones between the least and the most. */
void series_histogram(const series *s, int parts, int64_t *counts);

/* The highest of the NEARBY values before `when` and the NEARBY after it.  A ceiling is what the machine can do, so a sample that
 * something else disturbed says nothing against its neighbours; while a slow drift of the clock is followed.  NaN without values.
 */
enum { NEARBY = 4 };
double series_highest_near(const series *s, double when);

#endif
