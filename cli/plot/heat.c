/* SPDX-License-Identifier: MIT
 *
 * heat.c - see heat.h.  Cells of a small matrix are rectangles that show their value under the mouse; those of a large one are one
 * path for each colour, in runs along the rows. */
#include "heat.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "color.h"
#include "testing/text/failure.h"

enum { SPOKEN = 4096, LETTERS = 16, TITLE = 20, AXIS = 18, LABEL = 13 };
static const double lean = 55 * 0.017453292519943295; /* angle of the names of columns */

typedef struct frame { /* where the cells are, from the panel's corner */
    double left, top, cell;
} frame;

/* A name cut to its first LETTERS characters. */
static void shorten(const char *name, char text[LETTERS * 4 + 8])
{
    const char *at = name;
    int letters = 0;
    for (; *at && letters < LETTERS; letters++)
        for (at++; (*at & 0xc0) == 0x80;) at++;
    const size_t bytes = (size_t)(at - name) < LETTERS * 4 ? (size_t)(at - name) : LETTERS * 4;
    snprintf(text, LETTERS * 4 + 8, "%.*s%s", (int)bytes, name, *at ? "\xe2\x80\xa6" : "");
}

static void label_of(const char *const *names, int64_t n, char text[LETTERS * 4 + 8])
{
    if (names) shorten(names[n], text);
    else snprintf(text, LETTERS * 4 + 8, "%" PRId64, n);
}

static double widest(const char *const *names, int64_t count)
{
    char text[LETTERS * 4 + 8];
    double width = 0;
    for (int64_t n = names ? 0 : count - 1; n < count; n++) {
        label_of(names, n, text);
        width = fmax(width, figure_text_width(text));
    }
    return width;
}

static double cell_of(const heat *h)
{
    const int64_t most = h->rows > h->columns ? h->rows : h->columns;
    const double fits = 440.0 / (double)most;
    return h->cell > 0 ? h->cell : fits < 1 ? 1 : fits > 32 ? 32 : fits > 4 ? floor(fits) : fits;
}

static frame frame_of(const heat *h)
{
    const double cell = cell_of(h);
    if (h->small) return (frame){0, 16, cell};
    const double names = h->column_names ? widest(h->column_names, h->columns) * sin(lean) + 12 : 18;
    return (frame){AXIS + widest(h->row_names, h->rows) + 10, TITLE + AXIS + names, cell};
}

void heat_size(const heat *h, double *width, double *height)
{
    const frame at = frame_of(h);
    const double title = figure_text_width(h->title) * (h->small ? 0.9 : 1.1);
    const double last = !h->small && h->column_names ? 0.6 * widest(h->column_names + h->columns - 1, 1) : 0;
    *width = fmax(at.left + at.cell * (double)h->columns + last, title);
    *height = at.top + at.cell * (double)h->rows;
}

/* Write every n-th label, n = 1, 2, 5, 10, ...: the smallest that fits. */
static int64_t label_step(double cell, double capacity)
{
    static const int64_t steps[] = {1, 2, 5};
    for (int64_t tens = 1;; tens *= 10)
        for (int k = 0; k < 3; k++)
            if (cell * (double)(steps[k] * tens) >= capacity) return steps[k] * tens;
}

static void draw_labels(figure *f, const heat *h, frame at, double x, double y)
{
    char text[LETTERS * 4 + 8];
    const double left = x + at.left, top = y + at.top, width = at.cell * (double)h->columns, height = at.cell * (double)h->rows;
    figure_text(f, "quiet middle", left + width / 2, y + TITLE + 12, "%s", h->column_axis);
    figure_turned_text(f, "quiet middle", x + 12, top + height / 2, 90, h->row_axis);
    const int64_t each_row = label_step(at.cell, LABEL);
    for (int64_t i = 0; i < h->rows; i += each_row) {
        label_of(h->row_names, i, text);
        figure_text(f, "end", left - 6, top + at.cell * ((double)i + 0.5) + 4, "%s", text);
    }
    const int64_t each_column = label_step(at.cell, h->column_names ? LABEL : 12 + widest(NULL, h->columns));
    for (int64_t j = 0; j < h->columns; j += each_column) {
        label_of(h->column_names, j, text);
        const double middle = left + at.cell * ((double)j + 0.5);
        if (h->column_names) figure_turned_text(f, "label", middle + 4, top - 6, 55, text);
        else figure_text(f, "middle", middle, top - 6, "%s", text);
    }
}

enum { NOTHING = -1 };

/* The colour of a value: a step of a ramp, 0 or 1 of a mask, or NOTHING. */
static int color_of(const heat *h, double value)
{
    if (h->colors == HEAT_MASK) return value != 0;
    if (!isfinite(value)) return NOTHING;
    return color_step(value, h->colors == HEAT_DIVERGING ? -h->high : h->low, h->high);
}

static void class_of(heat_colors colors, int color, char class[8])
{
    if (color == NOTHING) snprintf(class, 8, "none");
    else snprintf(class, 8, "%c%d", colors == HEAT_MASK ? 'm' : colors == HEAT_DIVERGING ? 'd' : 'h', color);
}

static void describe(const heat *h, int64_t i, int64_t j, char *text, size_t size)
{
    char row[LETTERS * 4 + 8], column[LETTERS * 4 + 8], value[40];
    label_of(h->row_names, i, row);
    label_of(h->column_names, j, column);
    const double v = h->values[i * h->columns + j];
    if (h->colors == HEAT_MASK) snprintf(value, sizeof value, "%s", v != 0 ? "visible" : "masked");
    else if (!isfinite(v)) snprintf(value, sizeof value, "masked");
    else snprintf(value, sizeof value, "%s %.4g", h->value, v);
    snprintf(text, size, "%s %s, %s %s: %s", h->row_axis, row, h->column_axis, column, value);
}

static void draw_small(figure *f, const heat *h, frame at, double left, double top)
{
    char class[8], hover[300];
    for (int64_t i = 0; i < h->rows; i++)
        for (int64_t j = 0; j < h->columns; j++) {
            class_of(h->colors, color_of(h, h->values[i * h->columns + j]), class);
            describe(h, i, j, hover, sizeof hover);
            figure_box(f, class, left + at.cell * (double)j, top + at.cell * (double)i, at.cell, at.cell, hover);
        }
    if (at.cell < 26 || h->small || h->colors == HEAT_MASK) return;
    for (int64_t i = 0; i < h->rows; i++)
        for (int64_t j = 0; j < h->columns; j++) {
            const double v = h->values[i * h->columns + j];
            if (!isfinite(v)) continue;
            const int color = color_of(h, v), step = h->colors == HEAT_DIVERGING ? abs(2 * color - COLOR_STEPS) : color;
            figure_text(f, step > COLOR_STEPS / 2 ? "cell over" : "cell", left + at.cell * ((double)j + 0.5),
                        top + at.cell * ((double)i + 0.5) + 3.5,
                        fabs(v) >= 99.95   ? "%.0f"
                        : fabs(v) >= 9.995 ? "%.1f"
                                           : "%.2f",
                        v);
        }
}

static void draw_many(figure *f, const heat *h, frame at, double left, double top)
{
    signed char *color = need_memory(h->rows * h->columns, 1);
    for (int64_t n = 0; n < h->rows * h->columns; n++) color[n] = (signed char)color_of(h, h->values[n]);
    for (int c = NOTHING; c <= COLOR_STEPS; c++) {
        int begun = 0;
        for (int64_t i = 0; i < h->rows; i++)
            for (int64_t j = 0; j < h->columns; j++) {
                const signed char *row = color + i * h->columns;
                if (row[j] != c) continue;
                const int64_t first = j;
                char class[8];
                while (j + 1 < h->columns && row[j + 1] == c) j++;
                class_of(h->colors, c, class);
                if (!begun++) text_print(&f->out, "<path class=\"%s\" d=\"", class);
                const double width = at.cell * (double)(j - first + 1);
                text_print(&f->out, "M%.6g %.6gh%.6gv%.6gh%.6gz", left + at.cell * (double)first, top + at.cell * (double)i, width,
                           at.cell, -width);
            }
        if (begun) text_string(&f->out, "\"/>\n");
    }
    free(color);
}

void heat_draw(figure *f, const heat *h, double x, double y)
{
    const frame at = frame_of(h);
    const double left = x + at.left, top = y + at.top;
    figure_group(f, "panel", h->title);
    figure_text(f, h->small ? "quiet" : "name", x, y + 11, "%s", h->title);
    if (!h->small) draw_labels(f, h, at, x, y);
    figure_group(f, "cells", h->title);
    if (h->rows * h->columns <= SPOKEN) draw_small(f, h, at, left, top);
    else draw_many(f, h, at, left, top);
    figure_group_end(f);
    figure_box(f, "frame", left, top, at.cell * (double)h->columns, at.cell * (double)h->rows, NULL);
    figure_group_end(f);
}

void heat_put(figure *f, const heat *h)
{
    double width, height, x, y;
    heat_size(h, &width, &height);
    figure_place(f, width, height, &x, &y);
    heat_draw(f, h, x, y);
}

void heat_bar(figure *f, heat_colors colors, double low, double high, const char *label, double x, double y)
{
    const double cell = (double)HEAT_BAR_WIDTH / (COLOR_STEPS + 1);
    char class[8];
    figure_text(f, "quiet", x, y + 11, "%s", label);
    if (colors == HEAT_MASK) {
        static const char *const words[] = {"masked", "visible"};
        for (int n = 0; n < 2; n++) {
            figure_box(f, n ? "m1" : "m0", x + 80 * n, y + 20, 14, 14, NULL);
            figure_box(f, "frame", x + 80 * n, y + 20, 14, 14, NULL);
            figure_text(f, "label", x + 80 * n + 20, y + 31, "%s", words[n]);
        }
        return;
    }
    if (colors == HEAT_DIVERGING) low = -high;
    text_string(&f->out, "<g class=\"cells bar\">\n");
    for (int n = 0; n <= COLOR_STEPS; n++) {
        snprintf(class, sizeof class, "%c%d", colors == HEAT_DIVERGING ? 'd' : 'h', n);
        figure_box(f, class, x + cell * n, y + 18, cell + 0.5, 10, NULL);
    }
    figure_group_end(f);
    figure_box(f, "frame", x, y + 18, HEAT_BAR_WIDTH, 10, NULL);
    for (int n = 0; n <= 2; n++) {
        const double value = low + (high - low) * n / 2;
        figure_text(f,
                    n == 0   ? "label"
                    : n == 1 ? "middle"
                             : "end",
                    x + HEAT_BAR_WIDTH * n / 2.0, y + 43, "%.3g", fabs(value) < 1e-12 * (high - low) ? 0 : value);
    }
}

void heat_bar_put(figure *f, heat_colors colors, double low, double high, const char *label)
{
    double x, y;
    figure_new_row(f);
    figure_place(f, HEAT_BAR_WIDTH, HEAT_BAR_HEIGHT, &x, &y);
    heat_bar(f, colors, low, high, label, x, y);
}
