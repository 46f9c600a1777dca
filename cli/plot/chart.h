/* SPDX-License-Identifier: MIT
 *
 * chart.h - lines, points and bars over two axes, with ticks, units, reference lines, and a legend below. */
#ifndef ATTN_CLI_PLOT_CHART_H
#define ATTN_CLI_PLOT_CHART_H

#include <stdint.h>

#include "figure.h"

typedef enum axis_scale { AXIS_LINEAR, AXIS_LOG, AXIS_LOG_2 /* ticks at powers of 2 */ } axis_scale;

typedef struct chart_axis {
    const char *label; /* with the unit: "time (ms)" */
    axis_scale scale;
    double low, high;
    int integers; /* ticks at integers only */
} chart_axis;

typedef enum chart_mark { MARK_LINE, MARK_DASHED, MARK_POINTS /* on a line */, MARK_DOTS /* alone */, MARK_BARS } chart_mark;

typedef struct chart_series {
    const char *name;
    chart_mark mark;
    int color; /* of COLOR_SERIES */
    int64_t count;
    const double *x, *y;
    double width; /* of a bar, in units of x */
} chart_series;

/* A dashed reference line across, at a value of x or y. */
typedef struct chart_line {
    int vertical;
    double value;
    const char *name;
} chart_line;

enum { CHART_WIDTH = 560, CHART_HEIGHT = 340 };

typedef struct chart {
    const char *title;
    chart_axis x, y;
    double width, height; /* of the plot alone; 0: CHART_WIDTH, CHART_HEIGHT */
    const chart_series *series;
    int series_count;
    const chart_line *lines;
    int lines_count;
    const char *const *names; /* of x = 0, 1, ...; NULL: numbers */
    int64_t names_count;
} chart;

/* Maps values to pixels. */
typedef struct chart_space {
    double left, top, width, height;
    chart_axis x, y;
} chart_space;

double chart_x(const chart_space *s, double value);
double chart_y(const chart_space *s, double value);

void chart_size(const chart *c, double *width, double *height);
/* Draws title, axes and legend; chart_fill draws the inside and closes the group that chart_frame opens. */
chart_space chart_frame(figure *f, const chart *c, double x, double y);
void chart_fill(figure *f, const chart *c, const chart_space *space);
/* figure_place, chart_frame and chart_fill. */
chart_space chart_put(figure *f, const chart *c);

/* Sets low and high so that the axis holds all values, with a small margin; from 0 if that is near. */
void chart_range(chart_axis *axis, int64_t count, const double *values);

#endif
