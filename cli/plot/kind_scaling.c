/* SPDX-License-Identifier: MIT
 *
 * kind_scaling.c - what `attn-mpi bench` measured: speed-up, efficiency and the share of messages by the number of ranks. */
#include <stdio.h>
#include <string.h>

#include "color.h"
#include "kinds.h"
#include "testing/text/failure.h"

enum { MAX_LINES = 12, MAX_POINTS = 33 };

/* A problem and a kind of scaling, by the number of ranks. */
typedef struct line {
    char name[200];
    int count;
    int has_best; /* 0: predicted, without best deciles */
    double ranks[MAX_POINTS], speedup[MAX_POINTS], efficiency[MAX_POINTS], best[MAX_POINTS], share[MAX_POINTS];
} line;

static const char *text_of(const cJSON *row, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(row, name);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static line *line_of(line *lines, int *count, const char *name)
{
    for (int k = 0; k < *count; k++)
        if (strcmp(lines[k].name, name) == 0) return &lines[k];
    if (*count == MAX_LINES) return NULL;
    (void)snprintf(lines[*count].name, sizeof lines[*count].name, "%s", name);
    return &lines[(*count)++];
}

static attn_status read_point(const source *from, const cJSON *row, line *lines, int *count, attn_error *error)
{
    const char *problem = text_of(row, "problem"), *scaling = text_of(row, "scaling");
    char name[200];
    if (!problem || !scaling)
        return failure(error, ATTN_ERR_FORMAT, "%.100s: a result has no '%s'; `attn-mpi bench --json` writes it", from->path,
                       problem ? "scaling" : "problem");
    (void)snprintf(name, sizeof name, "%.150s, %.40s", problem, scaling);
    line *l = line_of(lines, count, name);
    if (!l || l->count == MAX_POINTS)
        return failure(error, ATTN_ERR_UNSUPPORTED, "%.100s: more than %d %s", from->path, l ? MAX_POINTS : MAX_LINES,
                       l ? "numbers of ranks" : "problems and kinds of scaling");
    l->has_best = !cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(from->json, "predicted"));
    const struct {
        const char *name;
        double *to, least; /* above 0, or from 0 on */
    } numbers[] = {{"ranks", &l->ranks[l->count], 1},
                   {"speedup", &l->speedup[l->count], 1e-9},
                   {"efficiency", &l->efficiency[l->count], 1e-9},
                   {"efficiency_best", &l->best[l->count], 1e-9},
                   {"share_of_messages", &l->share[l->count], 0}};
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++) {
        if (!l->has_best && numbers[n].to == &l->best[l->count]) continue;
        const attn_status status = source_number(from, row, numbers[n].name, name, numbers[n].to, error);
        if (status != ATTN_OK) return status;
        if (*numbers[n].to < numbers[n].least)
            return failure(error, ATTN_ERR_ARGUMENT, "%.100s: %.100s: '%s' is %g; it is too small", from->path, name,
                           numbers[n].name, *numbers[n].to);
    }
    l->count++;
    return ATTN_OK;
}

static chart_axis axis_of_ranks(const line *lines, int count)
{
    chart_axis axis = {"ranks", AXIS_LOG_2, 1, 2, 0};
    double all[MAX_LINES * MAX_POINTS];
    int64_t used = 0;
    for (int k = 0; k < count; k++)
        for (int p = 0; p < lines[k].count; p++) all[used++] = lines[k].ranks[p];
    chart_range(&axis, used, all);
    return axis;
}

static void draw_speedup(plot_task *task, const line *lines, int count)
{
    chart_series series[MAX_LINES + 1];
    double all[2 * MAX_LINES * MAX_POINTS];
    const line *longest = &lines[0];
    int64_t values = 0;
    for (int k = 0; k < count; k++) {
        const line *l = &lines[k];
        series[k] = (chart_series){l->name, MARK_POINTS, k % COLOR_SERIES, l->count, l->ranks, l->speedup, 0};
        for (int p = 0; p < l->count; p++) all[values++] = l->speedup[p], all[values++] = l->ranks[p];
        if (l->count > longest->count) longest = l;
    }
    series[count] = (chart_series){"ideal", MARK_DASHED, count % COLOR_SERIES, longest->count, longest->ranks, longest->ranks, 0};
    chart c = {.title = "Speed-up by ranks",
               .x = axis_of_ranks(lines, count),
               .y = {"times faster than one rank", AXIS_LOG_2, 1, 2, 0},
               .series = series,
               .series_count = count + 1};
    chart_range(&c.y, values, all);
    (void)chart_put(task->figure, &c);
}

static void draw_efficiency(plot_task *task, const line *lines, int count)
{
    static double percent[2 * MAX_LINES][MAX_POINTS];
    static char names[MAX_LINES][240];
    chart_series series[2 * MAX_LINES];
    double most = 100;
    int used = 0;
    for (int k = 0; k < count; k++) {
        const line *l = &lines[k];
        for (int p = 0; p < l->count; p++) {
            percent[2 * k][p] = 100 * l->efficiency[p];
            percent[2 * k + 1][p] = 100 * l->best[p];
            for (int n = 0; n <= l->has_best; n++)
                if (percent[2 * k + n][p] > most) most = percent[2 * k + n][p];
        }
        (void)snprintf(names[k], sizeof names[k], "%s: best decile", l->name);
        series[used++] = (chart_series){l->name, MARK_POINTS, k % COLOR_SERIES, l->count, l->ranks, percent[2 * k], 0};
        if (!l->has_best) continue;
        series[used++] = (chart_series){names[k], MARK_DASHED, k % COLOR_SERIES, l->count, l->ranks, percent[2 * k + 1], 0};
    }
    const chart c = {.title = "Efficiency by ranks",
                     .x = axis_of_ranks(lines, count),
                     .y = {"speed of a rank (% of one alone)", AXIS_LINEAR, 0, 1.05 * most, 0},
                     .series = series,
                     .series_count = used};
    (void)chart_put(task->figure, &c);
}

static void draw_messages(plot_task *task, const line *lines, int count)
{
    static double percent[MAX_LINES][MAX_POINTS];
    chart_series series[MAX_LINES];
    for (int k = 0; k < count; k++) {
        const line *l = &lines[k];
        for (int p = 0; p < l->count; p++) percent[k][p] = 100 * l->share[p];
        series[k] = (chart_series){l->name, MARK_POINTS, k % COLOR_SERIES, l->count, l->ranks, percent[k], 0};
    }
    const chart c = {.title = "Time in messages by ranks",
                     .x = axis_of_ranks(lines, count),
                     .y = {"share of the time of all ranks (%)", AXIS_LINEAR, 0, 100, 0},
                     .series = series,
                     .series_count = count};
    (void)chart_put(task->figure, &c);
}

static void tell_ranks(plot_task *task, const source *from)
{
    const cJSON *machine = cJSON_GetObjectItemCaseSensitive(from->json, "machine");
    const char *mpi = text_of(machine, "mpi");
    tell_machine(task, from);
    const size_t used = strlen(task->about);
    (void)snprintf(task->about + used, sizeof task->about - used, " for each rank%s%.60s", mpi ? ", " : "", mpi ? mpi : "");
}

attn_status plot_scaling(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    const cJSON *list, *row;
    static line lines[MAX_LINES];
    int count = 0;
    attn_status status = find_results(from, &list, error);
    if (status != ATTN_OK) return status;
    cJSON_ArrayForEach(row, list)
    {
        status = read_point(from, row, lines, &count, error);
        if (status != ATTN_OK) return status;
    }
    draw_speedup(task, lines, count);
    draw_efficiency(task, lines, count);
    draw_messages(task, lines, count);
    if (!lines[0].has_best) {
        tell_machine(task, from);
        (void)snprintf(task->title, sizeof task->title, "Scaling by the number of ranks, predicted");
        task->note =
            "A model, and no measurement: docs/distributed.md has its assumptions. Time in messages is what work does not hide.";
        return ATTN_OK;
    }
    tell_ranks(task, from);
    (void)snprintf(task->title, sizeof task->title, "Scaling by the number of ranks");
    task->note =
        "Strong scaling: the same problem for any number of ranks. Weak scaling: each rank has as many tokens; its speed-up is "
        "the time that one rank would need, over the time taken. Time in messages is mostly waiting for others.";
    return ATTN_OK;
}
