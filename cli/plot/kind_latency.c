/* SPDX-License-Identifier: MIT
 *
 * kind_latency.c - how long single calls of `attn bench` took. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "kinds.h"
#include "testing/text/failure.h"

enum { BINS = 40, MAX_PANELS = 8 };

/* Samples in bins of equal width from low to high, in seconds. */
typedef struct histogram {
    double low, high, count[BINS];
    int bins;
    int64_t beyond, all;
} histogram;

/* Bins the samples themselves.  A few calls wait for the machine and are cut off at `high`: they would squeeze all others into one
 * bar. */
static attn_status count_samples(const source *from, const char *name, const cJSON *list, double high, histogram *h,
                                 attn_error *error)
{
    const cJSON *one;
    *h = (histogram){.high = high, .bins = BINS};
    cJSON_ArrayForEach(one, list)
    {
        if (!cJSON_IsNumber(one) || !(one->valuedouble >= 0))
            return failure(error, ATTN_ERR_FORMAT, "%.100s: %.100s: 'seconds_all' has something that is not a time", from->path,
                           name);
        const double at = one->valuedouble / high * BINS;
        if (at < BINS) h->count[(int)at]++;
        else h->beyond++;
        h->all++;
    }
    return ATTN_OK;
}

/* The histogram that the JSON has without --samples: all samples in fewer bins. */
static attn_status read_histogram(const source *from, const char *name, const cJSON *row, histogram *h, attn_error *error)
{
    const cJSON *counts = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(row, "histogram"), "counts"), *one;
    *h = (histogram){0};
    if (!cJSON_IsArray(counts) || cJSON_GetArraySize(counts) < 1 || cJSON_GetArraySize(counts) > BINS)
        return failure(error, ATTN_ERR_FORMAT,
                       "%.100s: %.100s has no 'seconds_all' and no 'histogram'; `attn bench --json --samples` writes both",
                       from->path, name);
    attn_status status = source_number(from, row, "histogram.low", name, &h->low, error);
    if (status == ATTN_OK) status = source_number(from, row, "histogram.high", name, &h->high, error);
    cJSON_ArrayForEach(one, counts)
    {
        if (status == ATTN_OK && !(cJSON_IsNumber(one) && one->valuedouble >= 0 && one->valuedouble < 1e15))
            status =
                failure(error, ATTN_ERR_FORMAT, "%.100s: %.100s: 'histogram' has something that is not a count", from->path, name);
        if (status != ATTN_OK) return status;
        h->all += (int64_t)(h->count[h->bins++] = one->valuedouble);
    }
    if (!(h->high > h->low)) h->high = h->low + fmax(h->low, 1e-9); /* all samples are equal */
    return ATTN_OK;
}

static void draw_histogram(plot_task *task, const char *name, const histogram *h, double median, double p90, double p99)
{
    double x[BINS], most = 1;
    char text[3][120];
    const double part = (h->high - h->low) / h->bins;
    for (int k = 0; k < h->bins; k++) x[k] = 1e3 * (h->low + part * (k + 0.5)), most = fmax(most, h->count[k]);
    snprintf(text[0], sizeof text[0], "median: %.4g ms", 1e3 * median);
    snprintf(text[1], sizeof text[1], "90 %% are below %.4g ms", 1e3 * p90);
    snprintf(text[2], sizeof text[2], "99 %% are below %.4g ms; %" PRId64 " of %" PRId64 " are off the picture", 1e3 * p99,
             h->beyond, h->all);
    const chart_series bars = {"samples", MARK_BARS, 0, h->bins, x, h->count, 1e3 * part * 0.92};
    const chart_line lines[] = {{1, 1e3 * median, text[0]}, {1, 1e3 * p90, text[1]}, {1, 1e3 * p99, text[2]}};
    const chart c = {.title = name,
                     .x = {"time of a call (ms)", AXIS_LINEAR, 1e3 * h->low, 1e3 * h->high, 0},
                     .y = {"samples", AXIS_LINEAR, 0, 1.05 * most, 1},
                     .width = 460,
                     .height = 260,
                     .series = &bars,
                     .series_count = 1,
                     .lines = lines,
                     .lines_count = 3};
    (void)chart_put(task->figure, &c);
}

attn_status plot_latency(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    const cJSON *list, *row;
    attn_status status = find_results(from, &list, error);
    int panels = 0;
    if (status != ATTN_OK) return status;
    cJSON_ArrayForEach(row, list)
    {
        const cJSON *problem = cJSON_GetObjectItemCaseSensitive(row, "problem"),
                    *all = cJSON_GetObjectItemCaseSensitive(row, "seconds_all");
        const char *name = cJSON_IsString(problem) ? problem->valuestring : "a result";
        double median, p90, p99;
        histogram h;
        if (panels++ == MAX_PANELS)
            return failure(error, ATTN_ERR_UNSUPPORTED, "%.100s: more than %d results", from->path, MAX_PANELS);
        status = source_number(from, row, "seconds.median", name, &median, error);
        if (status == ATTN_OK) status = source_number(from, row, "seconds.p90", name, &p90, error);
        if (status == ATTN_OK) status = source_number(from, row, "seconds.p99", name, &p99, error);
        if (status == ATTN_OK && !(median > 0 && p90 >= median && p99 >= p90))
            status = failure(error, ATTN_ERR_ARGUMENT, "%.100s: %.100s: times of %g, %g and %g s are not positive and increasing",
                             from->path, name, median, p90, p99);
        if (status == ATTN_OK)
            status = all ? count_samples(from, name, all, 1.5 * p90, &h, error) : read_histogram(from, name, row, &h, error);
        if (status != ATTN_OK) return status;
        draw_histogram(task, name, &h, median, p90, p99);
    }
    tell_machine(task, from);
    snprintf(task->title, sizeof task->title, "How long single calls take");
    return ATTN_OK;
}
