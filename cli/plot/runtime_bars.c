/* SPDX-License-Identifier: MIT
 * runtime_bars.c - results that do not differ in their length alone, as bars: the strings on the left, numbers at the ends. */
#include <math.h>
#include <stdio.h>

#include "runtime.h"

enum { TOP = 30, ROW = 26, BAR = 16, WIDE = 420, GAP = 10, BELOW = 44, NUMBER = 150 };

/* 1, 2 or 5 times a power of ten, of which four to ten lead to `most`. */
static double step_to(double most)
{
    const double power = pow(10, floor(log10(most / 4)));
    return power * (most / 4 / power >= 5 ? 5 : most / 4 / power >= 2 ? 2 : 1);
}

/* One panel: values[k] of rows[k], with the text beside its bar. */
static void draw(figure *f, const char *title, const char *unit, const runtime_row *rows, int count, const double *values,
                 char (*texts)[60])
{
    double label = 0, most = 0, x, y;
    for (int k = 0; k < count; k++) {
        label = fmax(label, figure_text_width(rows[k].label));
        most = fmax(most, values[k]);
    }
    const double left = label + GAP, height = TOP + (double)ROW * count, step = step_to(most);
    figure_new_row(f);
    figure_place(f, left + WIDE + NUMBER, height + BELOW, &x, &y);
    figure_group(f, "panel", title);
    figure_text(f, "name", x, y + 12, "%s", title);
    figure_group(f, "x-axis", unit);
    for (double n = 0; n * step <= most; n++) {
        const double at = x + left + WIDE * n * step / most;
        figure_line(f, "grid", at, y + TOP - 6, at, y + height);
        figure_text(f, "quiet middle tick", at, y + height + 18, "%.6g", n * step);
    }
    figure_group_end(f);
    figure_text(f, "quiet middle", x + left + WIDE / 2.0, y + height + 38, "%s", unit);
    for (int k = 0; k < count; k++) {
        const double top = y + TOP + (double)ROW * k, wide = WIDE * values[k] / most;
        char hover[RUNTIME_TEXT + 80];
        snprintf(hover, sizeof hover, "%s: %s", rows[k].label, texts[k]);
        figure_group(f, "series", rows[k].label);
        figure_text(f, "end", x + left - GAP, top + BAR - 3, "%s", rows[k].label);
        figure_box(f, "f0", x + left, top, wide, BAR, hover);
        figure_text(f, "quiet", x + left + wide + 6, top + BAR - 3, "%s", texts[k]);
        figure_group_end(f);
    }
    figure_group_end(f);
}

/* Three digits, and no exponent of ten. */
static void put_number(char text[16], double value) { snprintf(text, 16, value < 999.5 ? "%.3g" : "%.0f", value); }

void runtime_bars(plot_task *task, const runtime_row *rows, int count)
{
    double values[RUNTIME_ROWS] = {0};
    char texts[RUNTIME_ROWS][60], number[16];
    int known = 1;
    for (int k = 0; k < count; k++) {
        const double faster = isfinite(rows[k].speedup) ? rows[k].speedup : rows[0].seconds / rows[k].seconds;
        values[k] = 1e3 * rows[k].seconds;
        put_number(number, values[k]);
        if (faster != 1) snprintf(texts[k], sizeof texts[k], "%s ms, %.3g times as fast", number, faster);
        else snprintf(texts[k], sizeof texts[k], "%s ms", number);
        known &= isfinite(rows[k].workspace);
    }
    draw(task->figure, "Time of a call", "time, median (ms)", rows, count, values, texts);
    double most = 0;
    for (int k = 0; k < count && known; k++) {
        values[k] = rows[k].workspace / 1048576;
        most = fmax(most, values[k]);
        put_number(number, values[k]);
        snprintf(texts[k], sizeof texts[k], "%s MiB", number);
    }
    if (known && most > 0) draw(task->figure, "Workspace of a call", "memory beside the tensors (MiB)", rows, count, values, texts);
}
