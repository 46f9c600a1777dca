/* SPDX-License-Identifier: MIT
 *
 * heat.h - a matrix as coloured cells, with both axes named, and its colour bar. */
#ifndef ATTN_CLI_PLOT_HEAT_H
#define ATTN_CLI_PLOT_HEAT_H

#include <stdint.h>

#include "figure.h"

typedef enum heat_colors {
    HEAT_SEQUENTIAL, /* from low, the paper, to high */
    HEAT_DIVERGING,  /* from -high over 0 to high */
    HEAT_MASK        /* 0 black, else white */
} heat_colors;

typedef struct heat {
    const char *title;
    const char *row_axis, *column_axis, *value; /* "query", "key", "weight" */
    int64_t rows, columns;
    const double *values; /* [rows][columns]; -infinity: nothing there */
    heat_colors colors;
    double low, high;
    const char *const *row_names, *const *column_names; /* NULL: numbers */
    double cell;                                        /* its size in pixels; 0: as fits */
    int small;                                          /* cells and title only */
} heat;

/* The most cells in one picture. */
enum { HEAT_MAX = 1 << 20 };

void heat_size(const heat *h, double *width, double *height);
void heat_draw(figure *f, const heat *h, double x, double y);
/* figure_place and heat_draw. */
void heat_put(figure *f, const heat *h);

enum { HEAT_BAR_WIDTH = 240, HEAT_BAR_HEIGHT = 48 };
/* A colour bar, with the values of its ends and middle, and a label. */
void heat_bar(figure *f, heat_colors colors, double low, double high, const char *label, double x, double y);
void heat_bar_put(figure *f, heat_colors colors, double low, double high, const char *label);

#endif
