/* SPDX-License-Identifier: MIT
 *
 * kind_entropy.c - how concentrated weights are: the distribution of the entropies of rows, and what a temperature would do. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "attn/analysis.h"
#include "kinds.h"
#include "testing/text/failure.h"

enum { BINS = 20, MAX_BARS = 120 };

/* ---- the distribution ---- */

/* Entropies of the rows of one head, from the tensor that has them or from weights. */
static attn_status entropies(const stack *s, int64_t layer, int64_t entry, int64_t head, double *out, attn_error *error)
{
    double *numbers = NULL, sum;
    attn_status status = stack_read(s, layer, entry, head, 0, &numbers, error);
    if (status == ATTN_OK && s->columns > 1) status = check_weights(s, numbers, error);
    const int64_t row = status == ATTN_OK && s->columns > 1 ? row_without_entropy(s, numbers, &sum) : -1;
    if (row >= 0)
        status =
            failure(error, ATTN_ERR_ARGUMENT, "%.100s: tensor '%.40s': row %" PRId64 " sums to %.4g, not to 1; it has no entropy",
                    s->source->path, s->tensor->name, row, sum);
    for (int64_t i = 0; i < s->rows && status == ATTN_OK; i++)
        out[i] = s->columns > 1 ? attn_entropy(s->columns, numbers + i * s->columns) : numbers[i];
    free(numbers);
    return status;
}

/* The number of keys: the columns of weights; with entropies alone, that of the metadata, or as many as queries. */
static int64_t keys_of(const stack *s)
{
    const char *text = attn_archive_get_metadata(s->source->tensors, "attn_problem");
    problem_spec spec;
    if (s->columns > 1) return s->columns;
    if (text && problem_parse(text, &spec, NULL) == ATTN_OK) return spec.shape.len_kv < 0 ? spec.shape.len_q : spec.shape.len_kv;
    return s->rows;
}

static void draw_histogram(plot_task *task, const double *values, int64_t count, double limit)
{
    double x[BINS], y[BINS] = {0}, mean = 0, high;
    const double top = limit > 0 ? limit : 1;
    char text[2][80];
    for (int64_t n = 0; n < count; n++) {
        const int bin = (int)(values[n] / top * BINS);
        y[bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin]++;
        mean += values[n] / (double)count;
    }
    for (int k = 0; k < BINS; k++) x[k] = top * (k + 0.5) / BINS;
    const chart_series bars = {"queries", MARK_BARS, 0, BINS, x, y, top / BINS * 0.92};
    snprintf(text[0], sizeof text[0], "mean, %.3g", mean);
    snprintf(text[1], sizeof text[1], "largest possible, the logarithm of the number of keys: %.3g", limit);
    const chart_line lines[] = {{1, 0, "0: all weight on one key"}, {1, mean, text[0]}, {1, limit, text[1]}};
    chart c = {.title = "How many queries have which entropy",
               .x = {"entropy of a query's weights (nats)", AXIS_LINEAR, -0.03 * top, 1.03 * top, 0},
               .y = {"queries", AXIS_LINEAR, 0, 1, 1},
               .series = &bars,
               .series_count = 1,
               .lines = lines,
               .lines_count = 3};
    chart_range(&c.y, BINS, y);
    high = c.y.high;
    c.y.low = 0, c.y.high = high;
    (void)chart_put(task->figure, &c);
}

static void draw_means(plot_task *task, const double *means, char (*names)[40], int64_t heads, double limit)
{
    double *x = need_memory(heads, sizeof *x);
    const char **words = need_memory(heads, sizeof *words);
    char text[80];
    for (int64_t k = 0; k < heads; k++) x[k] = (double)k, words[k] = names[k];
    snprintf(text, sizeof text, "largest possible: %.3g", limit);
    const chart_series bars = {"mean entropy", MARK_BARS, 0, heads, x, means, 0.8};
    const chart_line line = {0, limit, text};
    const chart c = {.title = "Mean entropy of each head",
                     .x = {"head", AXIS_LINEAR, -0.6, (double)heads - 0.4, 0},
                     .y = {"mean entropy (nats)", AXIS_LINEAR, 0, (limit > 0 ? limit : 1) * 1.05, 0},
                     .width = fmax(180, fmin(1100, 14.0 * (double)heads)),
                     .series = &bars,
                     .series_count = 1,
                     .lines = &line,
                     .lines_count = 1,
                     .names = words,
                     .names_count = heads};
    (void)chart_put(task->figure, &c);
    free(x), free(words);
}

static attn_status draw_entropy(plot_task *task, const stack *s, const choice *c, attn_error *error)
{
    const int64_t heads = c->layers * c->heads, count = heads * s->rows;
    double *values = need_memory(count, sizeof *values), *means = need_memory(heads, sizeof *means);
    char(*names)[40] = need_memory(heads, sizeof *names);
    const double limit = attn_max_entropy(keys_of(s));
    attn_status status = ATTN_OK;
    for (int64_t k = 0; k < heads && status == ATTN_OK; k++) {
        status = entropies(s, c->layer[k / c->heads], c->entry, c->head[k % c->heads], values + k * s->rows, error);
        for (int64_t i = 0; i < s->rows; i++) means[k] += values[k * s->rows + i] / (double)s->rows;
        name_head_shortly(s, c->layer[k / c->heads], c->head[k % c->heads], names[k]);
    }
    if (status == ATTN_OK) {
        draw_histogram(task, values, count, limit);
        if (heads > 1 && heads <= MAX_BARS) draw_means(task, means, names, heads, limit);
        snprintf(task->title, sizeof task->title, "Entropy of %" PRId64 " rows of weights, %" PRId64 " head%s", count, heads,
                 heads > 1 ? "s" : "");
    }
    free(values), free(means), free(names);
    return status;
}

attn_status plot_entropy(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    const int direct = from->tensors && attn_archive_find(from->tensors, "entropy");
    stack s;
    choice c = {0};
    attn_status status = direct ? stack_open(&s, from, "entropy", "attn run --entropy", 1, error)
                                : stack_open(&s, from, "weights", "attn run --entropy (or --weights)", 2, error);
    if (status == ATTN_OK) status = choice_make(&c, task, &s, 0, error);
    if (status == ATTN_OK) status = draw_entropy(task, &s, &c, error);
    tell_source(task, from);
    task->note = "Low entropy: a query looks at few keys; the exponential of the entropy is how many, in effect.";
    choice_free(&c);
    stack_close(&s);
    return status;
}

/* ---- temperature ---- */

enum { POINTS = 50, SHOWN = 5 };
static const double shown[SHOWN] = {0.1, 0.5, 1, 2, 5};

/* Weights (may be NULL) and entropy of one row of scores at a temperature. */
static attn_status soften(const double *scores, int64_t n, double temperature, double *weights, double *entropy, attn_error *error)
{
    unsigned char *keep = need_memory(n, 1);
    double *finite = need_memory(n, sizeof *finite), *p = need_memory(n, sizeof *p);
    attn_gibbs gibbs = {.struct_size = sizeof gibbs};
    int any = 0;
    for (int64_t j = 0; j < n; j++) keep[j] = isfinite(scores[j]) ? 1 : 0, any |= keep[j], finite[j] = keep[j] ? scores[j] : 0;
    attn_status status = any ? attn_softmax(n, temperature, finite, keep, p, &gibbs, error) : ATTN_OK;
    for (int64_t j = 0; j < n && weights; j++) weights[j] = any ? p[j] : 0;
    *entropy = any ? gibbs.entropy : 0;
    free(keep), free(finite), free(p);
    return status;
}

static attn_status draw_sweep(plot_task *task, const stack *s, const double *scores, int64_t query, attn_error *error)
{
    double t[POINTS], mean[POINTS] = {0}, one[POINTS] = {0}, entropy;
    char name[2][80];
    attn_status status = ATTN_OK;
    for (int k = 0; k < POINTS; k++) {
        t[k] = 0.1 + 4.9 * k / (POINTS - 1);
        for (int64_t i = 0; i < s->rows && status == ATTN_OK; i++) {
            status = soften(scores + i * s->columns, s->columns, t[k], NULL, &entropy, error);
            mean[k] += entropy / (double)s->rows;
            if (i == query) one[k] = entropy;
        }
    }
    if (status != ATTN_OK) return status;
    const double limit = attn_max_entropy(s->columns);
    snprintf(name[0], sizeof name[0], "query %" PRId64, query);
    snprintf(name[1], sizeof name[1], "largest possible, the logarithm of the number of keys: %.3g", limit);
    const chart_series series[] = {{"mean of all queries", MARK_LINE, 0, POINTS, t, mean, 0},
                                   {name[0], MARK_LINE, 1, POINTS, t, one, 0}};
    const chart_line lines[] = {{0, limit, name[1]}, {1, 1, "T = 1: the weights as they are"}};
    const chart c = {.title = "Entropy by temperature",
                     .x = {"temperature T (weights are softmax(scores / T))", AXIS_LINEAR, 0, 5.1, 0},
                     .y = {"entropy (nats)", AXIS_LINEAR, 0, (limit > 0 ? limit : 1) * 1.05, 0},
                     .series = series,
                     .series_count = 2,
                     .lines = lines,
                     .lines_count = 2};
    (void)chart_put(task->figure, &c);
    return ATTN_OK;
}

static attn_status draw_row(plot_task *task, const stack *s, const double *scores, int64_t query, const char **names,
                            attn_error *error)
{
    const int bars = s->columns <= 32;
    const int64_t n = s->columns;
    double *x = need_memory(SHOWN * n, sizeof *x), *y = need_memory(SHOWN * n, sizeof *y), entropy, most = 0;
    char text[SHOWN][40], title[120];
    chart_series series[SHOWN];
    attn_status status = ATTN_OK;
    for (int k = 0; k < SHOWN && status == ATTN_OK; k++) {
        status = soften(scores + query * n, n, shown[k], y + k * n, &entropy, error);
        for (int64_t j = 0; j < n; j++) {
            x[k * n + j] = (double)j + (bars ? 0.16 * (k - 2) : 0);
            most = fmax(most, y[k * n + j]);
        }
        snprintf(text[k], sizeof text[k], "T = %g: entropy %.3g", shown[k], entropy);
        series[k] = (chart_series){text[k], bars ? MARK_BARS : MARK_LINE, k, n, x + k * n, y + k * n, 0.15};
    }
    snprintf(title, sizeof title, "What query %" PRId64 " attends to at five temperatures", query);
    const chart c = {.title = title,
                     .x = {"key", AXIS_LINEAR, -0.6, (double)n - 0.4, 1},
                     .y = {"weight", AXIS_LINEAR, 0, most > 0 ? 1.05 * most : 1, 0},
                     .series = series,
                     .series_count = SHOWN,
                     .names = names,
                     .names_count = n};
    if (status == ATTN_OK) (void)chart_put(task->figure, &c);
    free(x), free(y);
    return status;
}

attn_status plot_temperature(plot_task *task, attn_error *error)
{
    stack s;
    choice c = {0};
    int64_t query = 0;
    double *scores = NULL;
    attn_status status = stack_open(&s, &task->sources[0], task->settings->tensor ? task->settings->tensor : "scores",
                                    "attn run --scores=biased", 2, error);
    if (status == ATTN_OK) status = choice_make(&c, task, &s, 1, error);
    if (status == ATTN_OK) status = choose_query(task, &s, s.rows - 1, &query, error);
    if (status == ATTN_OK && s.rows * s.columns > HEAT_MAX)
        status =
            failure(error, ATTN_ERR_UNSUPPORTED, "%.80s: %" PRId64 " x %" PRId64 " scores are too many for a picture (at most %d)",
                    task->sources[0].path, s.rows, s.columns, HEAT_MAX);
    if (status == ATTN_OK) status = stack_read(&s, c.layer[0], c.entry, c.head[0], 1, &scores, error);
    if (status == ATTN_OK) {
        char head[80];
        const char **names = stack_column_names(&s, c.entry);
        name_head(&s, c.layer[0], c.head[0], head);
        snprintf(task->title, sizeof task->title, "Temperature: %s", head);
        status = draw_sweep(task, &s, scores, query, error);
        if (status == ATTN_OK) status = draw_row(task, &s, scores, query, names, error);
        free(names);
    }
    tell_source(task, &task->sources[0]);
    task->note = "1/T is the inverse temperature beta: a low temperature puts all weight on the largest score, a high one makes "
                 "all keys alike.";
    free(scores);
    choice_free(&c);
    stack_close(&s);
    return status;
}
