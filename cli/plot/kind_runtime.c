/* SPDX-License-Identifier: MIT
 *
 * kind_runtime.c - what `attn bench` measured: time and memory by length, the curves that grow as n and as n^2, speed-ups. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "color.h"
#include "kinds.h"
#include "testing/text/failure.h"

enum { MAX_GROUPS = 8, MAX_POINTS = 64 };

/* Problems that differ only in their length. */
typedef struct group {
    char name[200];
    int count;
    double n[MAX_POINTS], seconds[MAX_POINTS], extra[MAX_POINTS], scores[MAX_POINTS],
        estimate[MAX_POINTS]; /* bytes; NaN: unknown */
} group;

/* The problem without its lengths, and the length. */
static attn_status split_problem(const source *from, const char *text, char name[200], double *n, attn_error *error)
{
    problem_spec spec;
    attn_status status = problem_parse(text, &spec, error);
    if (status != ATTN_OK) return failure_about(error, from->path);
    const attn_shape s = spec.shape;
    *n = (double)(s.len_q > s.len_kv ? s.len_q : s.len_kv);
    spec.shape.len_kv = 1;
    if (s.len_q > 1 || s.len_kv <= 1) spec.shape.len_q = 1;
    problem_print(&spec, name, 200);
    char *length = strstr(name, ":sq1");
    if (length) memmove(length, length + 4, strlen(length + 4) + 1);
    return ATTN_OK;
}

static group *group_of(group *groups, int *count, const char *name)
{
    for (int k = 0; k < *count; k++)
        if (strcmp(groups[k].name, name) == 0) return &groups[k];
    if (*count == MAX_GROUPS) return NULL;
    snprintf(groups[*count].name, sizeof groups[*count].name, "%s", name);
    return &groups[(*count)++];
}

attn_status find_results(const source *from, const cJSON **list, attn_error *error)
{
    *list = from->json ? cJSON_GetObjectItemCaseSensitive(from->json, "results") : NULL;
    if (*list && cJSON_IsArray(*list) && (*list)->child) return ATTN_OK;
    return failure(error, ATTN_ERR_FORMAT, "%.100s: no 'results'; `attn bench --json` or --csv writes them", from->path);
}

static double optional(const source *from, const cJSON *row, const char *name)
{
    double value;
    return source_number(from, row, name, "", &value, NULL) == ATTN_OK && value > 0 ? value : NAN;
}

static attn_status read_results(const source *from, group *groups, int *count, attn_error *error)
{
    const cJSON *list, *row;
    attn_status status = find_results(from, &list, error);
    if (status != ATTN_OK) return status;
    cJSON_ArrayForEach(row, list)
    {
        const cJSON *problem = cJSON_GetObjectItemCaseSensitive(row, "problem");
        char name[200];
        double n = 0, seconds = 0;
        if (!cJSON_IsString(problem)) return failure(error, ATTN_ERR_FORMAT, "%.100s: a result has no 'problem'", from->path);
        status = split_problem(from, problem->valuestring, name, &n, error);
        if (status == ATTN_OK) status = source_number(from, row, "seconds.median", problem->valuestring, &seconds, error);
        if (status == ATTN_OK && !(seconds > 0 && n > 0))
            status = failure(error, ATTN_ERR_ARGUMENT, "%.100s: %.100s: a time of %g s at length %g has no logarithm", from->path,
                             problem->valuestring, seconds, n);
        if (status != ATTN_OK) return status;
        group *g = group_of(groups, count, name);
        if (!g || g->count == MAX_POINTS)
            return failure(error, ATTN_ERR_UNSUPPORTED, "%.100s: more than %d %s", from->path, g ? MAX_POINTS : MAX_GROUPS,
                           g ? "lengths of one problem" : "kinds of problems");
        int at = g->count++;
        for (; at > 0 && g->n[at - 1] > n; at--) { /* in order of length */
            g->n[at] = g->n[at - 1], g->seconds[at] = g->seconds[at - 1], g->extra[at] = g->extra[at - 1];
            g->scores[at] = g->scores[at - 1], g->estimate[at] = g->estimate[at - 1];
        }
        g->n[at] = n, g->seconds[at] = seconds;
        g->extra[at] = optional(from, row, "extra_bytes");
        g->scores[at] = optional(from, row, "scores_bytes");
        g->estimate[at] = optional(from, row, "workspace_bytes");
    }
    return ATTN_OK;
}

/* The factor a of the least-squares fit a n^power of the logarithms. */
static double fit(const group *g, int power)
{
    double sum = 0;
    for (int k = 0; k < g->count; k++) sum += log(g->seconds[k]) - power * log(g->n[k]);
    return exp(sum / g->count);
}

/* The power of n with which time grows: the slope of the line through the logarithms. */
static double slope(const group *g)
{
    double x = 0, y = 0, xx = 0, xy = 0;
    for (int k = 0; k < g->count; k++) x += log(g->n[k]) / g->count, y += log(g->seconds[k]) / g->count;
    for (int k = 0; k < g->count; k++) {
        xx += (log(g->n[k]) - x) * (log(g->n[k]) - x);
        xy += (log(g->n[k]) - x) * (log(g->seconds[k]) - y);
    }
    return xx > 0 ? xy / xx : 0;
}

static chart_axis length_axis(const group *groups, int count)
{
    double all[MAX_GROUPS * MAX_POINTS];
    chart_axis axis = {"length n (tokens)", AXIS_LOG_2, 1, 2, 0};
    int64_t used = 0;
    for (int k = 0; k < count; k++)
        for (int p = 0; p < groups[k].count; p++) all[used++] = groups[k].n[p];
    chart_range(&axis, used, all);
    return axis;
}

static void draw_time(plot_task *task, const group *groups, int count)
{
    static double y[3 * MAX_GROUPS][MAX_POINTS];
    static char names[3 * MAX_GROUPS][300];
    chart_series series[3 * MAX_GROUPS];
    int used = 0;
    double all[3 * MAX_GROUPS * MAX_POINTS];
    int64_t all_count = 0;
    for (int k = 0; k < count; k++) {
        const group *g = &groups[k];
        for (int p = 0; p < g->count; p++) all[all_count++] = y[used][p] = 1e3 * g->seconds[p];
        if (g->count > 1) snprintf(names[used], sizeof names[used], "%s: time grows as n^%.2f", g->name, slope(g));
        else snprintf(names[used], sizeof names[used], "%s", g->name);
        series[used] = (chart_series){names[used], MARK_POINTS, k, g->count, g->n, y[used], 0};
        used++;
        for (int power = 1; power <= 2 && g->count > 1; power++, used++) {
            const double factor = 1e3 * fit(g, power);
            for (int p = 0; p < g->count; p++) all[all_count++] = y[used][p] = factor * pow(g->n[p], power);
            snprintf(names[used], sizeof names[used], "fitted %.3g n%s ms", factor, power == 2 ? "^2" : "");
            series[used] = (chart_series){
                names[used], MARK_DASHED, power == 1 ? (k + 2) % COLOR_SERIES : (k + 4) % COLOR_SERIES, g->count, g->n, y[used], 0};
        }
    }
    chart c = {.title = "Time of a call by length",
               .x = length_axis(groups, count),
               .y = {"time, median (ms)", AXIS_LOG, 1, 10, 0},
               .series = series,
               .series_count = used};
    chart_range(&c.y, all_count, all);
    (void)chart_put(task->figure, &c);
}

static void draw_memory(plot_task *task, const group *groups, int count)
{
    static double y[3 * MAX_GROUPS][MAX_POINTS];
    static char names[3 * MAX_GROUPS][300];
    chart_series series[3 * MAX_GROUPS];
    double all[3 * MAX_GROUPS * MAX_POINTS];
    int used = 0;
    int64_t all_count = 0;
    for (int k = 0; k < count; k++) {
        const group *g = &groups[k];
        const struct {
            const char *what;
            const double *bytes;
            chart_mark mark;
        } rows[] = {{"beside the tensors, measured", g->extra, MARK_POINTS},
                    {"workspace, planned", g->estimate, MARK_LINE},
                    {"all scores, if they were stored", g->scores, MARK_DASHED}};
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            int any = 0;
            for (int p = 0; p < g->count; p++) {
                y[used][p] = rows[r].bytes[p] / 1048576;
                if (isfinite(y[used][p])) any = 1, all[all_count++] = y[used][p];
            }
            const int again = k > 0 && rows[r].bytes == g->scores && g->count == groups[0].count &&
                              memcmp(g->scores, groups[0].scores, (size_t)g->count * sizeof *g->scores) == 0;
            if (!any || again) continue;
            snprintf(names[used], sizeof names[used], "%s: %s", g->name, rows[r].what);
            series[used] = (chart_series){names[used], rows[r].mark, (k + 3 * (int)r) % COLOR_SERIES, g->count, g->n, y[used], 0};
            used++;
        }
    }
    if (!used) return;
    chart c = {.title = "Memory of a call by length",
               .x = length_axis(groups, count),
               .y = {"memory (MiB)", AXIS_LOG, 1, 10, 0},
               .series = series,
               .series_count = used};
    chart_range(&c.y, all_count, all);
    (void)chart_put(task->figure, &c);
}

/* How much faster the other groups are than the first, at lengths that both have. */
static void draw_speedup(plot_task *task, const group *groups, int count)
{
    static double x[MAX_GROUPS][MAX_POINTS], y[MAX_GROUPS][MAX_POINTS];
    static char names[MAX_GROUPS][460];
    chart_series series[MAX_GROUPS];
    double all[MAX_GROUPS * MAX_POINTS];
    int used = 0;
    int64_t all_count = 0;
    for (int k = 1; k < count; k++) {
        int points = 0;
        for (int p = 0; p < groups[k].count; p++)
            for (int f = 0; f < groups[0].count; f++) {
                if (groups[0].n[f] != groups[k].n[p] || points == MAX_POINTS) continue;
                x[used][points] = groups[k].n[p];
                all[all_count++] = y[used][points++] = groups[0].seconds[f] / groups[k].seconds[p];
            }
        if (!points) continue;
        snprintf(names[used], sizeof names[used], "%s over %s", groups[k].name, groups[0].name);
        series[used] = (chart_series){names[used], MARK_POINTS, k, points, x[used], y[used], 0};
        used++;
    }
    if (!used) return;
    const chart_line line = {0, 1, "equally fast"};
    chart c = {.title = "How many times faster, by length",
               .x = length_axis(groups, count),
               .y = {"speed-up", AXIS_LOG, 1, 10, 0},
               .series = series,
               .series_count = used,
               .lines = &line,
               .lines_count = 1};
    all[all_count++] = 1;
    chart_range(&c.y, all_count, all);
    (void)chart_put(task->figure, &c);
}

void tell_machine(plot_task *task, const source *from)
{
    const cJSON *machine = cJSON_GetObjectItemCaseSensitive(from->json, "machine"),
                *row = cJSON_GetObjectItemCaseSensitive(from->json, "results");
    const cJSON *cpu = cJSON_GetObjectItemCaseSensitive(machine ? machine : row ? row->child : NULL, "cpu");
    const cJSON *threads = cJSON_GetObjectItemCaseSensitive(machine ? machine : row ? row->child : NULL, "threads");
    snprintf(task->about, sizeof task->about, "%.150s%s%.100s", from->path, cJSON_IsString(cpu) ? ": " : "",
             cJSON_IsString(cpu) ? cpu->valuestring : "");
    const size_t used = strlen(task->about);
    if (cJSON_IsNumber(threads)) snprintf(task->about + used, sizeof task->about - used, ", %g threads", threads->valuedouble);
}

attn_status plot_runtime(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    group *groups = need_memory(MAX_GROUPS, sizeof *groups);
    int count = 0, most = 0;
    attn_status status = read_results(from, groups, &count, error);
    for (int k = 0; k < count; k++)
        if (groups[k].count > most) most = groups[k].count;
    if (status == ATTN_OK && most < 2)
        status = failure(error, ATTN_ERR_ARGUMENT, "%.100s: no two problems differ only in their length (sq or skv)", from->path);
    if (status == ATTN_OK) {
        draw_time(task, groups, count);
        draw_memory(task, groups, count);
        draw_speedup(task, groups, count);
        tell_machine(task, from);
        snprintf(task->title, sizeof task->title, "Time and memory by length");
        task->note =
            "All axes are logarithmic: what grows as n rises one step for each, what grows as n^2 two. Fits are least squares "
            "of the logarithms.";
    }
    free(groups);
    return status;
}
