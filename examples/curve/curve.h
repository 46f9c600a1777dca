/* SPDX-License-Identifier: MIT
 * curve.h - what training looked like, as files.  Each returns 0 if one cannot be written. */
#ifndef CURVE_H
#define CURVE_H

#include <stdint.h>

/* FOLDER/loss.csv, and FOLDER/loss.svg on a logarithmic scale. */
int curve_write(const char *folder, const char *title, const double *losses, int steps);

/* A square matrix of weights as FOLDER/NAME.csv, a row a line, and as FOLDER/NAME.svg, dark where a weight is large. */
int curve_write_weights(const char *folder, const char *name, const char *title, const float *weights, int64_t n);

/* A bar on a terminal's standard error. */
void curve_show_progress(int step, int steps, double loss);

#endif
