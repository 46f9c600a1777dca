/* SPDX-License-Identifier: MIT
 *
 * statistics.h - series of measurements with the time at which each was taken.
 */
#ifndef ATTN_CLI_MEASURE_STATISTICS_H
#define ATTN_CLI_MEASURE_STATISTICS_H

#include <stdint.h>

/* Zero-initialised. */
typedef struct series {
    double *when; /* increasing */
    double *value;
    int64_t count;
    int64_t capacity;
} series;

void series_add(series *s, double when, double value);
void series_free(series *s);

/* The quantile of the share `part` (0 to 1), linear between neighbours; NaN if count is 0. */
double quantile(const double *values, int64_t count, double part);

/* The mean, and the standard deviation; NaN without values. */
double series_mean(const series *s, double *deviation);

/* counts[k] is how many values lie in part k of `parts` equal ones between the least and the most. */
void series_histogram(const series *s, int parts, int64_t *counts);

/* The highest of the NEARBY values before `when` and the NEARBY after it.  A ceiling is what the machine can do, so a disturbed
 * sample yields to its neighbours, while a slow drift of the clock is followed.  NaN without values. */
enum { NEARBY = 4 };
double series_highest_near(const series *s, double when);

#endif
