/* SPDX-License-Identifier: MIT
 *
 * kind_gradients.c - gradients of q, k and v as heat maps on one scale, and the norms of all gradients on the way as bars. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kinds.h"
#include "testing/text/failure.h"

static attn_status draw_norms(plot_task *task, const char *const *names, const double *norms, int64_t count)
{
    double x[8];
    chart_axis y = {"norm of the gradient", AXIS_LINEAR, 0, 1, 0};
    for (int64_t k = 0; k < count; k++) x[k] = (double)k;
    chart_range(&y, count, norms);
    y.low = 0;
    const chart_series bars = {"norm", MARK_BARS, 0, count, x, norms, 0.7};
    const chart c = {.title = "How large gradients are",
                     .x = {"gradient of", AXIS_LINEAR, -0.6, (double)count - 0.4, 0},
                     .y = y,
                     .width = 70 * (double)count,
                     .height = 260,
                     .series = &bars,
                     .series_count = 1,
                     .names = names,
                     .names_count = count};
    (void)chart_put(task->figure, &c);
    return ATTN_OK;
}

/* What `attn analyze --gradients --json` prints. */
static attn_status draw_json(plot_task *task, const source *from, attn_error *error)
{
    static const char *const names[] = {"do", "dweights", "dscores", "dq", "dk", "dv"};
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(from->json, "gradient_norms");
    double norms[6];
    if (!cJSON_IsObject(list))
        return failure(error, ATTN_ERR_FORMAT, "%.100s: no 'gradient_norms'; `attn analyze --gradients --json` writes them",
                       from->path);
    for (int k = 0; k < 6; k++) {
        const attn_status status = source_number(from, list, names[k], "'gradient_norms'", &norms[k], error);
        if (status != ATTN_OK) return status;
    }
    snprintf(task->title, sizeof task->title, "Gradients on the way from outputs to queries, keys and values");
    return draw_norms(task, names, norms, 6);
}

static attn_status draw_tensors(plot_task *task, const source *from, attn_error *error)
{
    static const char *const names[] = {"dq", "dk", "dv"};
    stack s[3] = {{0}};
    choice c[3] = {{0}};
    double *numbers[3] = {NULL}, norms[3] = {0}, most = 0;
    char head[80];
    attn_status status = ATTN_OK;
    for (int k = 0; k < 3 && status == ATTN_OK; k++) {
        status = stack_open(&s[k], from, names[k], "attn run --backward", 2, error);
        /* Keys and values may have fewer heads: the one that the query head uses. */
        if (status == ATTN_OK && k == 0) status = choice_make(&c[k], task, &s[k], 1, error);
        if (status != ATTN_OK) break;
        const int64_t used = k ? c[0].head[0] * s[k].heads / s[0].heads : c[0].head[0];
        if (s[k].labels.layers != s[0].labels.layers || s[k].rows * s[k].columns > HEAT_MAX)
            status = failure(error, ATTN_ERR_SHAPE, "%.100s: tensor '%s' [%" PRId64 ", %" PRId64 "] %s", from->path, names[k],
                             s[k].rows, s[k].columns,
                             s[k].labels.layers != s[0].labels.layers ? "has other layers than dq" : "is too large for a picture");
        if (status == ATTN_OK) status = stack_read(&s[k], c[0].layer[0], c[0].entry, used, 0, &numbers[k], error);
        for (int64_t n = 0; status == ATTN_OK && n < s[k].rows * s[k].columns; n++) {
            norms[k] += numbers[k][n] * numbers[k][n];
            most = fmax(most, fabs(numbers[k][n]));
        }
        norms[k] = sqrt(norms[k]);
    }
    for (int k = 0; k < 3 && status == ATTN_OK; k++) {
        const char **rows = stack_row_names(&s[k], c[0].entry);
        char title[80];
        snprintf(title, sizeof title, "%s, norm %.4g", names[k], norms[k]);
        const heat h = {title,      k ? "key" : "query",
                        "channel",  names[k],
                        s[k].rows,  s[k].columns,
                        numbers[k], HEAT_DIVERGING,
                        0,          most > 0 ? most : 1,
                        rows,       NULL,
                        0,          0};
        heat_put(task->figure, &h);
        free(rows);
    }
    if (status == ATTN_OK) {
        name_head(&s[0], c[0].layer[0], c[0].head[0], head);
        snprintf(task->title, sizeof task->title, "Gradients of queries, keys and values: %s", head);
        status = draw_norms(task, names, norms, 3);
        heat_bar_put(task->figure, HEAT_DIVERGING, 0, most > 0 ? most : 1, "gradient");
    }
    for (int k = 0; k < 3; k++) {
        free(numbers[k]);
        choice_free(&c[k]);
        stack_close(&s[k]);
    }
    return status;
}

attn_status plot_gradients(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    tell_source(task, from);
    return from->json ? draw_json(task, from, error) : draw_tensors(task, from, error);
}
