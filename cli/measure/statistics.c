/* SPDX-License-Identifier: MIT
 * statistics.c - quantiles, and which ceiling belongs to which sample. */
#include "statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing/text/failure.h"

static double *grow(double *values, int64_t count, int64_t capacity)
{
    double *larger = need_memory(capacity, sizeof *larger);
    if (count) memcpy(larger, values, (size_t)count * sizeof *larger);
    free(values);
    return larger;
}

void series_add(series *s, double when, double value)
{
    if (s->count == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 256;
        s->when = grow(s->when, s->count, s->capacity);
        s->value = grow(s->value, s->count, s->capacity);
    }
    s->when[s->count] = when;
    s->value[s->count++] = value;
}

void series_free(series *s)
{
    free(s->when);
    free(s->value);
    *s = (series){0};
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quantile(const double *values, int64_t count, double part)
{
    if (count < 1) return NAN;
    double *sorted = grow(NULL, 0, count);
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    const double place = part * (double)(count - 1);
    const int64_t below = (int64_t)place;
    const int64_t above = below + 1 < count ? below + 1 : below;
    const double result = sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
    free(sorted);
    return result;
}

double series_mean(const series *s, double *deviation)
{
    double sum = 0, square = 0;
    for (int64_t k = 0; k < s->count; k++) sum += s->value[k];
    const double mean = sum / (double)s->count;
    for (int64_t k = 0; k < s->count; k++) square += (s->value[k] - mean) * (s->value[k] - mean);
    *deviation = sqrt(square / (double)s->count);
    return mean;
}

void series_histogram(const series *s, int parts, int64_t *counts)
{
    const double low = quantile(s->value, s->count, 0), width = (quantile(s->value, s->count, 1) - low) / parts;
    for (int k = 0; k < parts; k++) counts[k] = 0;
    for (int64_t k = 0; k < s->count; k++) {
        const int64_t part = width > 0 ? (int64_t)((s->value[k] - low) / width) : 0;
        counts[part < parts ? part : parts - 1]++;
    }
}

double series_highest_near(const series *s, double when)
{
    int64_t low = 0, high = s->count;
    while (low < high) { /* the first that was taken after `when` */
        const int64_t middle = (low + high) / 2;
        if (s->when[middle] > when) high = middle;
        else low = middle + 1;
    }
    double highest = NAN;
    for (int64_t k = low - NEARBY; k < low + NEARBY; k++)
        if (k >= 0 && k < s->count && !(highest >= s->value[k])) highest = s->value[k];
    return highest;
}
