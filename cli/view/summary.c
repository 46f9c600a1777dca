/* SPDX-License-Identifier: MIT
 *
 * summary.c - one pass over the rows of a head. */
#include "summary.h"

#include <math.h>
#include <stdlib.h>

#include "testing/text/failure.h"

static const double nearly = 0.01; /* of sums, as in rows.c */

static int64_t at_most(int64_t n, int64_t limit) { return n < limit ? n : limit; }

/* The part that element i of n belongs to: the largest y with floor(y n / parts) <= i. */
static int64_t part_of(int64_t i, int64_t n, int64_t parts) { return ((i + 1) * parts - 1) / n; }

static void level_begin(view_level *level, int64_t len_q, int64_t len_k, int64_t size)
{
    *level = (view_level){.rows = at_most(len_q, size), .columns = at_most(len_k, size)};
    const int64_t count = level->rows * level->columns;
    level->most = need_memory(count, sizeof *level->most);
    level->mean = need_memory(count, sizeof *level->mean);
    for (int64_t k = 0; k < count; k++) level->most[k] = -INFINITY;
}

void summary_begin(view_summary *s, int64_t len_q, int64_t len_k)
{
    *s = (view_summary){.len_q = len_q, .len_k = len_k};
    s->spread = need_memory(len_q, sizeof *s->spread);
    s->received = need_memory(len_k, sizeof *s->received);
    s->sum = need_memory(len_k, sizeof *s->sum);
    s->column = need_memory(2 * len_k, sizeof *s->column);
    if (len_q == 0 || len_k == 0 || len_q <= SUMMARY_PLAIN / len_k) return;
    level_begin(&s->small, len_q, len_k, SUMMARY_SMALL);
    if (len_q > SUMMARY_LONG || len_k > SUMMARY_LONG) level_begin(&s->large, len_q, len_k, SUMMARY_LARGE);
    for (int64_t j = 0; j < len_k; j++) {
        s->column[j] = part_of(j, len_k, s->small.columns);
        if (s->large.rows) s->column[len_k + j] = part_of(j, len_k, s->large.columns);
    }
}

static void level_add(const view_level *level, const int64_t *column, int64_t i, int64_t len_q, int64_t len_k, const float *weights)
{
    if (!level->rows) return;
    float *most = level->most + part_of(i, len_q, level->rows) * level->columns;
    float *mean = level->mean + part_of(i, len_q, level->rows) * level->columns;
    for (int64_t j = 0; j < len_k; j++) {
        const float w = isfinite(weights[j]) ? weights[j] : NAN;
        const int64_t x = column[j];
        if (w > most[x] || isnan(w)) most[x] = w; /* NaN stays: no number is above it */
        mean[x] += w;
    }
}

void summary_add(view_summary *s, int64_t i, const float *weights, const uint8_t *visible)
{
    double sum = 0, entropy = 0;
    int64_t seen = 0;
    for (int64_t j = 0; j < s->len_k; j++) {
        const double p = (double)weights[j];
        seen += visible ? visible[j] : p != 0;
        s->sum[j] += p;
        sum += p;
        if (p > 0) entropy -= p * (double)logf(weights[j]); /* quick, and as exact as the page shows */
        if (isfinite(p) && (!s->any || weights[j] > s->largest)) s->any = 1, s->largest = weights[j];
    }
    s->spread[i] = seen > 1 && fabs(sum - 1) <= nearly ? (float)fmin(1, entropy / log((double)seen)) : NAN;
    level_add(&s->small, s->column, i, s->len_q, s->len_k, weights);
    level_add(&s->large, s->column + s->len_k, i, s->len_q, s->len_k, weights);
}

/* Sums of parts become means. */
static void level_end(const view_level *level, int64_t len_q, int64_t len_k)
{
    for (int64_t y = 0; y < level->rows; y++)
        for (int64_t x = 0; x < level->columns; x++) {
            const int64_t height = (y + 1) * len_q / level->rows - y * len_q / level->rows;
            const int64_t width = (x + 1) * len_k / level->columns - x * len_k / level->columns;
            level->mean[y * level->columns + x] /= (float)(height * width);
        }
}

void summary_end(view_summary *s)
{
    for (int64_t j = 0; j < s->len_k; j++) s->received[j] = s->len_q ? (float)(s->sum[j] / (double)s->len_q) : 0;
    level_end(&s->small, s->len_q, s->len_k);
    level_end(&s->large, s->len_q, s->len_k);
    free(s->sum), free(s->column);
    s->sum = NULL, s->column = NULL;
}

void summary_free(view_summary *s)
{
    void *const owned[] = {s->spread, s->received, s->small.most, s->small.mean, s->large.most, s->large.mean, s->sum, s->column};
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++) free(owned[k]);
}
