/* SPDX-License-Identifier: MIT
 *
 * contour.h - lines of equal height over a grid of numbers. */
#ifndef ATTN_CLI_PLOT_CONTOUR_H
#define ATTN_CLI_PLOT_CONTOUR_H

#include "chart.h"

/* Heights [points][points], row by row from the lowest y to the highest, over the whole of `space`: `levels` lines, evenly spaced
 * between low and high, in the colours of heat_bar. */
void contour_fill(figure *f, const chart_space *space, int64_t points, const double *heights, int levels, double low, double high);

#endif
