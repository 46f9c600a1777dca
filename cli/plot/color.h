/* SPDX-License-Identifier: MIT
 *
 * color.h - the colours of pictures, each for light and for dark paper, as CSS rules. */
#ifndef ATTN_CLI_PLOT_COLOR_H
#define ATTN_CLI_PLOT_COLOR_H

#include "cli/base/text_buffer.h"

/* Steps of a ramp: classes h0 .. h64 (sequential: 0 is the paper) and d0 .. d64 (diverging: 32 is 0); c0 .. c64 are lines in
 * the colours of h. */
enum { COLOR_STEPS = 64 };

/* Series of a chart: classes s0 .. s7 for lines, f0 .. f7 for areas. */
enum { COLOR_SERIES = 8 };

/* The step of a value on a scale from low to high; values beyond are clamped. */
int color_step(double value, double low, double high);

/* All rules: text, lines, ramps, series. */
void color_write_rules(text_buffer *out);

#endif
