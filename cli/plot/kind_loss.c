/* SPDX-License-Identifier: MIT
 *
 * kind_loss.c - the loss of each step of training, on a logarithmic scale, smoothed too. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kinds.h"
#include "testing/text/failure.h"

enum { MAX_POINTS = 2000, PANEL_WIDTH = 720 };

/* What is drawn of many steps: every n-th, so that a file of a million steps is no picture of a million points. */
typedef struct curve {
    int64_t count;
    double *step, *loss, *mean;
    double lowest;
} curve;

/* On a logarithmic scale the logarithms are averaged: a mean of the losses themselves would stay near the first, large ones. */
static curve take(const double *losses, int64_t steps)
{
    const int64_t every = (steps + MAX_POINTS - 1) / MAX_POINTS;
    const double keep = steps < 100 ? 0.5 : 1 - 50 / (double)steps; /* a fiftieth of the run */
    curve c = {.step = need_memory(MAX_POINTS + 1, sizeof(double)),
               .loss = need_memory(MAX_POINTS + 1, sizeof(double)),
               .mean = need_memory(MAX_POINTS + 1, sizeof(double)),
               .lowest = losses[0]};
    for (int64_t n = 1; n < steps; n++) c.lowest = fmin(c.lowest, losses[n]);
    const int logarithms = c.lowest > 0;
    double mean = logarithms ? log(losses[0]) : losses[0];
    for (int64_t n = 0; n < steps; n++) {
        mean = keep * mean + (1 - keep) * (logarithms ? log(losses[n]) : losses[n]);
        if (n % every && n + 1 < steps) continue;
        c.step[c.count] = (double)(n + 1);
        c.loss[c.count] = losses[n];
        c.mean[c.count++] = logarithms ? exp(mean) : mean;
    }
    return c;
}

static void draw(plot_task *task, const curve *c)
{
    const chart_series series[] = {{"loss of a step", MARK_LINE, 0, c->count, c->step, c->loss, 0},
                                   {"smoothed", MARK_DASHED, 1, c->count, c->step, c->mean, 0}};
    chart picture = {.title = "Loss by step",
                     .x = {"step", AXIS_LINEAR, 0, 1, 1},
                     .y = {"loss (nats)", c->lowest > 0 ? AXIS_LOG : AXIS_LINEAR, 0, 1, 0},
                     .width = PANEL_WIDTH,
                     .series = series,
                     .series_count = 2};
    chart_range(&picture.x, c->count, c->step);
    chart_range(&picture.y, c->count, c->loss);
    (void)chart_put(task->figure, &picture);
}

attn_status plot_loss(plot_task *task, attn_error *error)
{
    const source *from = &task->sources[0];
    const attn_archive_tensor *tensor;
    attn_status status = source_find(from, "loss", "attn train -o", &tensor, error);
    if (status != ATTN_OK) return status;
    if (tensor->rank != 1 || tensor->shape[0] < 1)
        return failure(error, ATTN_ERR_SHAPE, "%.100s: tensor 'loss' is not [step] with at least one step", from->path);
    const int64_t steps = tensor->shape[0];
    double *losses = need_memory(steps, sizeof *losses);
    status = source_numbers(from, tensor, 0, steps, 0, losses, error);
    if (status == ATTN_OK) {
        const curve c = take(losses, steps);
        const char *about = attn_archive_get_metadata(from->tensors, "attn_train");
        draw(task, &c);
        tell_source(task, from);
        snprintf(task->title, sizeof task->title, "Loss over %" PRId64 " steps%s%.40s", steps, about ? " of " : "",
                 about ? about : "");
        snprintf(task->text, sizeof task->text, "%.4g at first, %.4g at last.", losses[0], losses[steps - 1]);
        task->note = task->text;
        free(c.step), free(c.loss), free(c.mean);
    }
    free(losses);
    return status;
}
