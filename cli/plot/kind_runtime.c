/* SPDX-License-Identifier: MIT
 *
 * kind_runtime.c - what `attn bench` measured: time and memory by length, the curves that grow as n and as n^2, speed-ups. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "color.h"
#include "runtime.h"
#include "testing/text/failure.h"

enum { MAX_GROUPS = 16, MAX_POINTS = 64, FEW_GROUPS = 2 /* of more, each has one curve a chart */ };

/* Problems that differ only in their length. */
typedef struct group {
    const char *name;
    int count;
    double n[MAX_POINTS], seconds[MAX_POINTS], extra[MAX_POINTS], scores[MAX_POINTS],
        estimate[MAX_POINTS]; /* bytes; NaN: unknown */
} group;

/* ---- the file ---- */

/* The number of a word "sq1024"; 0: it is another word. */
static double size_of(const char *word, size_t length, const char *name)
{
    const size_t letters = strlen(name);
    if (length <= letters || strncmp(word, name, letters) != 0) return 0;
    return strspn(word + letters, "0123456789") == length - letters ? strtod(word + letters, NULL) : 0;
}

/* The length, and the string without it: without skv, and without sq unless there are more keys than queries.  (A string may have
 * words that only attn bench knows.) */
static void split_problem(const char *text, char *without, double *n)
{
    double queries = 0, keys = 0;
    size_t used = 0;
    for (int pass = 0; pass < 2; pass++)
        for (const char *at = text;; at++) {
            const size_t length = strcspn(at, ":");
            const double sq = size_of(at, length, "sq"), skv = size_of(at, length, "skv");
            const int kept = !(skv > 0 || (sq > 0 && (keys <= 0 || keys <= queries)));
            if (!pass) queries += sq, keys += skv;
            else if (kept && used < RUNTIME_TEXT)
                used += (size_t)snprintf(without + used, RUNTIME_TEXT - used, "%s%.*s", used ? ":" : "", (int)length, at);
            at += length;
            if (!*at) break;
        }
    *n = fmax(queries, keys);
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

static attn_status read_row(const source *from, const cJSON *row, runtime_row *x, attn_error *error)
{
    const cJSON *problem = cJSON_GetObjectItemCaseSensitive(row, "problem"), *name = cJSON_GetObjectItemCaseSensitive(row, "name");
    char without[RUNTIME_TEXT] = "";
    const int named = cJSON_IsString(name) && name->valuestring[0];
    if (!cJSON_IsString(problem)) return failure(error, ATTN_ERR_FORMAT, "%.100s: a result has no 'problem'", from->path);
    split_problem(problem->valuestring, without, &x->n);
    const attn_status status = source_number(from, row, "seconds.median", problem->valuestring, &x->seconds, error);
    if (status != ATTN_OK) return status;
    if (!(x->seconds > 0 && x->n > 0))
        return failure(error, ATTN_ERR_ARGUMENT, "%.100s: %.100s: a time of %g s at length %g has no logarithm", from->path,
                       problem->valuestring, x->seconds, x->n);
    snprintf(x->label, sizeof x->label, "%.60s%s%.200s", named ? name->valuestring : "", named ? " = " : "", problem->valuestring);
    snprintf(x->group, sizeof x->group, "%.60s%s%.200s", named ? name->valuestring : "", named ? " = " : "", without);
    x->extra = optional(from, row, "extra_bytes");
    x->scores = optional(from, row, "scores_bytes");
    x->workspace = optional(from, row, "workspace_bytes");
    x->speedup = optional(from, row, "speedup");
    return ATTN_OK;
}

static attn_status read_results(const source *from, runtime_row *rows, int *count, attn_error *error)
{
    const cJSON *list, *row;
    attn_status status = find_results(from, &list, error);
    if (status != ATTN_OK) return status;
    cJSON_ArrayForEach(row, list)
    {
        if (*count == RUNTIME_ROWS)
            return failure(error, ATTN_ERR_UNSUPPORTED, "%.100s: more than %d results", from->path, RUNTIME_ROWS);
        if ((status = read_row(from, row, &rows[(*count)++], error)) != ATTN_OK) return status;
    }
    return ATTN_OK;
}

/* ---- by length ---- */

static group *group_of(group *groups, int *count, const char *name)
{
    for (int k = 0; k < *count; k++)
        if (strcmp(groups[k].name, name) == 0) return &groups[k];
    if (*count == MAX_GROUPS) return NULL;
    groups[*count].name = name;
    return &groups[(*count)++];
}

/* 1 if two results differ only in their length. */
static int has_lengths(const runtime_row *rows, int count)
{
    for (int k = 1; k < count; k++)
        for (int j = 0; j < k; j++)
            if (rows[j].n != rows[k].n && strcmp(rows[j].group, rows[k].group) == 0) return 1;
    return 0;
}

static attn_status make_groups(const source *from, const runtime_row *rows, int rows_count, group *groups, int *count,
                               attn_error *error)
{
    for (const runtime_row *x = rows; x < rows + rows_count; x++) {
        group *g = group_of(groups, count, x->group);
        if (!g || g->count == MAX_POINTS)
            return failure(error, ATTN_ERR_UNSUPPORTED, "%.100s: more than %d %s", from->path, g ? MAX_POINTS : MAX_GROUPS,
                           g ? "lengths of one problem" : "kinds of problems");
        int at = g->count++;
        for (; at > 0 && g->n[at - 1] > x->n; at--) { /* in order of length */
            g->n[at] = g->n[at - 1], g->seconds[at] = g->seconds[at - 1], g->extra[at] = g->extra[at - 1];
            g->scores[at] = g->scores[at - 1], g->estimate[at] = g->estimate[at - 1];
        }
        g->n[at] = x->n, g->seconds[at] = x->seconds;
        g->extra[at] = x->extra, g->scores[at] = x->scores, g->estimate[at] = x->workspace;
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

/* More kinds than colors: the others are dashed. */
static chart_mark mark_of(int k) { return k < COLOR_SERIES ? MARK_POINTS : MARK_DASHED; }

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
        series[used] = (chart_series){names[used], mark_of(k), k % COLOR_SERIES, g->count, g->n, y[used], 0};
        used++;
        for (int power = 1; power <= 2 && g->count > 1 && count <= FEW_GROUPS; power++, used++) {
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

/* Of "flash = fwd:..." the name. */
static size_t short_length(const char *name)
{
    const char *end = strstr(name, " = ");
    return end ? (size_t)(end - name) : strlen(name);
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
            const int again = k > 0 && rows[r].bytes == g->scores && g->count == groups[0].count &&
                              memcmp(g->scores, groups[0].scores, (size_t)g->count * sizeof *g->scores) == 0;
            if (again || (count > FEW_GROUPS && rows[r].bytes != g->estimate)) continue;
            int any = 0;
            for (int p = 0; p < g->count; p++) {
                y[used][p] = rows[r].bytes[p] / 1048576;
                if (isfinite(y[used][p])) any = 1, all[all_count++] = y[used][p];
            }
            if (!any) continue;
            const int length = (int)(count > FEW_GROUPS ? short_length(g->name) : strlen(g->name));
            snprintf(names[used], sizeof names[used], "%.*s: %s", length, g->name, rows[r].what);
            const int color = count > FEW_GROUPS ? k : k + 3 * (int)r;
            const chart_mark mark = count > FEW_GROUPS ? mark_of(k) : rows[r].mark;
            series[used] = (chart_series){names[used], mark, color % COLOR_SERIES, g->count, g->n, y[used], 0};
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
        const size_t length = short_length(groups[k].name), first = short_length(groups[0].name);
        snprintf(names[used], sizeof names[used], "%.*s over %.*s", (int)length, groups[k].name, (int)first, groups[0].name);
        series[used] = (chart_series){names[used], mark_of(k), k % COLOR_SERIES, points, x[used], y[used], 0};
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

static void draw_by_length(plot_task *task, const group *groups, int count)
{
    draw_time(task, groups, count);
    draw_memory(task, groups, count);
    draw_speedup(task, groups, count);
    snprintf(task->title, sizeof task->title, "Time and memory by length");
    task->note = "All axes are logarithmic: what grows as n rises one step for each, what grows as n^2 two. Fits are least squares "
                 "of the logarithms.";
}

attn_status plot_runtime(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    runtime_row *rows = need_memory(RUNTIME_ROWS, sizeof *rows);
    group *groups = need_memory(MAX_GROUPS, sizeof *groups);
    int count = 0, groups_count = 0;
    attn_status status = read_results(from, rows, &count, error);
    if (status == ATTN_OK && count < 2)
        status = failure(error, ATTN_ERR_ARGUMENT, "%.100s: one result alone; a picture compares lengths or variants", from->path);
    const int by_length = status == ATTN_OK && has_lengths(rows, count);
    if (by_length) status = make_groups(from, rows, count, groups, &groups_count, error);
    if (status == ATTN_OK && by_length) draw_by_length(task, groups, groups_count);
    if (status == ATTN_OK && !by_length) {
        runtime_bars(task, rows, count);
        snprintf(task->title, sizeof task->title, "Time and memory of calls");
    }
    if (status == ATTN_OK) tell_machine(task, from);
    free(rows);
    free(groups);
    return status;
}
