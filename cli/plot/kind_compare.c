/* SPDX-License-Identifier: MIT
 *
 * kind_compare.c - the same head under several mechanisms, a file for each: metrics of scores, softmax beside linear attention. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/analysis.h"
#include "kinds.h"
#include "testing/text/failure.h"

enum { MAX_FILES = 8 };

typedef struct comparison {
    stack s[MAX_FILES];
    choice c;
    double *weights[MAX_FILES], entropy[MAX_FILES], sum[MAX_FILES]; /* the last two are means of the rows */
    int distributions;                                              /* 1: all rows sum to 1 */
    char name[MAX_FILES][64];                                       /* of the file, without folder and extension */
    int64_t query;
} comparison;

static void name_file(const char *path, char name[64])
{
    const char *slash = strrchr(path, '/'), *from = slash ? slash + 1 : path, *dot = strrchr(from, '.');
    snprintf(name, 64, "%.*s", (int)(dot && dot > from ? dot - from : (long)strlen(from)), from);
}

static attn_status read_files(plot_task *task, comparison *x, attn_error *error)
{
    attn_status status = ATTN_OK;
    const char *name = task->settings->tensor ? task->settings->tensor : "weights";
    double off;
    x->distributions = 1;
    for (int k = 0; k < task->count && status == ATTN_OK; k++) {
        stack *s = &x->s[k];
        status = stack_open(s, &task->sources[k], name, "attn run --weights", 2, error);
        if (status == ATTN_OK && k == 0) status = choice_make(&x->c, task, s, 1, error);
        if (status == ATTN_OK && k == 0) status = choose_query(task, s, s->rows - 1, &x->query, error);
        if (status != ATTN_OK) break;
        if (s->rows != x->s[0].rows || s->columns != x->s[0].columns || s->heads != x->s[0].heads ||
            s->labels.layers != x->s[0].labels.layers)
            return failure(error, ATTN_ERR_SHAPE,
                           "%.80s: [%" PRId64 ", %" PRId64 ", %" PRId64 "] weights do not fit those of %.80s, [%" PRId64
                           ", %" PRId64 ", %" PRId64 "]",
                           task->sources[k].path, s->heads, s->rows, s->columns, task->sources[0].path, x->s[0].heads, x->s[0].rows,
                           x->s[0].columns);
        if (s->rows * s->columns * task->count > HEAT_MAX)
            return failure(error, ATTN_ERR_UNSUPPORTED, "%.80s: %" PRId64 " x %" PRId64 " weights are too many for a picture",
                           task->sources[k].path, s->rows, s->columns);
        status = stack_read(s, x->c.layer[0], x->c.entry, x->c.head[0], 0, &x->weights[k], error);
        if (status == ATTN_OK) status = check_weights(s, x->weights[k], error);
        if (status == ATTN_OK) x->distributions &= row_without_entropy(s, x->weights[k], &off) < 0;
        for (int64_t i = 0; i < s->rows && status == ATTN_OK; i++) {
            const double *row = x->weights[k] + i * s->columns;
            x->entropy[k] += attn_entropy(s->columns, row) / (double)s->rows;
            for (int64_t j = 0; j < s->columns; j++) x->sum[k] += row[j] / (double)s->rows;
        }
        name_file(task->sources[k].path, x->name[k]);
    }
    return status;
}

/* The names of n places in all files, "tired / flooded" where these differ, in *text; NULL if no file has names. */
static const char **join_names(const char **const *of, int count, int64_t n, char **text)
{
    size_t size = 0;
    for (int k = 0; k < count; k++)
        for (int64_t j = 0; j < n && of[k]; j++) size += strlen(of[k][j]) + sizeof " / ";
    if (size == 0) return NULL;
    const char **names = need_memory(n, sizeof *names);
    char *at = *text = need_memory((int64_t)size + n, 1);
    for (int64_t j = 0; j < n; j++, at++) {
        names[j] = at;
        for (int k = 0; k < count; k++) {
            int seen = !of[k];
            for (int other = 0; other < k && !seen; other++) seen = of[other] && strcmp(of[other][j], of[k][j]) == 0;
            if (!seen) at += sprintf(at, "%s%s", at > names[j] ? " / " : "", of[k][j]);
        }
    }
    return names;
}

static void draw_query(plot_task *task, const comparison *x, const char **names)
{
    const stack *s = &x->s[0];
    const int64_t n = s->columns;
    const int bars = n <= 32;
    double *at = need_memory(task->count * n, sizeof *at), most = 0;
    chart_series series[MAX_FILES];
    char title[160];
    for (int k = 0; k < task->count; k++) {
        const double *row = x->weights[k] + x->query * n, wide = 0.8 / task->count;
        for (int64_t j = 0; j < n; j++) {
            at[k * n + j] = (double)j + (bars ? wide * (k - (task->count - 1) / 2.0) : 0);
            most = fmax(most, row[j]);
        }
        series[k] = (chart_series){x->name[k], bars ? MARK_BARS : MARK_LINE, k, n, at + k * n, row, wide * 0.95};
    }
    snprintf(title, sizeof title, "What query %" PRId64 "%s%.40s%s attends to", x->query, names ? " (" : "",
             names && s->rows == n ? names[x->query] : "", names ? ")" : "");
    const chart c = {.title = title,
                     .x = {"key", AXIS_LINEAR, -0.6, (double)n - 0.4, 1},
                     .y = {"weight", AXIS_LINEAR, 0, most > 0 ? most * 1.05 : 1, 0},
                     .series = series,
                     .series_count = task->count,
                     .names = names,
                     .names_count = n};
    (void)chart_put(task->figure, &c);
    free(at);
}

/* The mean entropies of the files, or the mean sums if not all rows are distributions. */
static void draw_means(plot_task *task, const comparison *x)
{
    double at[MAX_FILES];
    const char *names[MAX_FILES];
    const double *means = x->distributions ? x->entropy : x->sum, limit = x->distributions ? attn_max_entropy(x->s[0].columns) : 1;
    double most = limit;
    char text[80];
    for (int k = 0; k < task->count; k++) at[k] = k, names[k] = x->name[k], most = fmax(most, means[k]);
    if (x->distributions) snprintf(text, sizeof text, "largest possible: %.3g", limit);
    else snprintf(text, sizeof text, "softmax: 1");
    const chart_series bars = {x->distributions ? "mean entropy" : "mean sum", MARK_BARS, 0, task->count, at, means, 0.7};
    const chart_line line = {0, limit, text};
    const chart c = {.title = x->distributions ? "Mean entropy of the rows" : "Mean sum of the rows",
                     .x = {"file", AXIS_LINEAR, -0.6, task->count - 0.4, 0},
                     .y = {x->distributions ? "entropy (nats)" : "sum of the weights of a query", AXIS_LINEAR, 0,
                           (most > 0 ? most : 1) * 1.05, 0},
                     .width = fmax(180, 70 * task->count),
                     .series = &bars,
                     .series_count = 1,
                     .lines = &line,
                     .lines_count = 1,
                     .names = names,
                     .names_count = task->count};
    (void)chart_put(task->figure, &c);
}

static double largest_of_all(const plot_task *task, const comparison *x)
{
    double most = 0;
    for (int k = 0; k < task->count; k++) most = fmax(most, plot_largest(x->weights[k], x->s[k].rows * x->s[k].columns));
    return most;
}

attn_status plot_compare(plot_task *task, attn_error *error)
{
    comparison x = {0};
    char head[80];
    if (task->count < 2) return failure(error, ATTN_ERR_ARGUMENT, "compare needs at least two files");
    attn_status status = read_files(task, &x, error);
    if (status == ATTN_OK) {
        const char **rows[MAX_FILES], **columns[MAX_FILES], **names;
        char *text = NULL;
        double high = task->settings->high > 0 ? task->settings->high : 1;
        if (task->settings->high == 0) high = largest_of_all(task, &x);
        for (int k = 0; k < task->count; k++) {
            const stack *s = &x.s[k];
            rows[k] = stack_row_names(s, x.c.entry), columns[k] = stack_column_names(s, x.c.entry);
            const heat h = {x.name[k],
                            "query",
                            "key",
                            "weight",
                            s->rows,
                            s->columns,
                            x.weights[k],
                            HEAT_SEQUENTIAL,
                            0,
                            high,
                            rows[k],
                            columns[k],
                            fmin(20, 280.0 / (double)(s->rows > s->columns ? s->rows : s->columns)),
                            0};
            heat_put(task->figure, &h);
        }
        heat_bar_put(task->figure, HEAT_SEQUENTIAL, 0, high, "weight");
        figure_new_row(task->figure);
        names = join_names(columns, task->count, x.s[0].columns, &text);
        draw_query(task, &x, names);
        draw_means(task, &x);
        name_head(&x.s[0], x.c.layer[0], x.c.head[0], head);
        snprintf(task->title, sizeof task->title, "The weights of %s, compared", head);
        for (int k = 0; k < task->count; k++) free(rows[k]), free(columns[k]);
        free(names), free(text);
    }
    snprintf(task->about, sizeof task->about, "%d files", task->count);
    snprintf(task->text, sizeof task->text, "%s", weights_note(x.distributions));
    for (int k = 0; k < task->count; k++) {
        const char *problem = x.s[k].tensor ? attn_archive_get_metadata(task->sources[k].tensors, "attn_problem") : NULL;
        const size_t used = strlen(task->text);
        if (problem) snprintf(task->text + used, sizeof task->text - used, "%s%.40s: %.100s", k ? "; " : " ", x.name[k], problem);
        free(x.weights[k]);
        stack_close(&x.s[k]);
    }
    task->note = task->text;
    choice_free(&x.c);
    return status;
}
