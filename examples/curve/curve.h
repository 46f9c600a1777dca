/* SPDX-License-Identifier: MIT
 * curve.h - the course of a training run, as files.  Each function returns 0 if this fails. */
#ifndef CURVE_H
#define CURVE_H

#include <stdint.h>

/* Makes the folder if there is none. */
int curve_make_folder(const char *folder);

/* FOLDER/loss.csv, and FOLDER/loss.svg on a logarithmic scale. */
int curve_write(const char *folder, const char *title, const double *losses, int steps);

/* A square matrix of weights as FOLDER/NAME.csv, one row per line, and as FOLDER/NAME.svg, dark where a weight is large. */
int curve_write_weights(const char *folder, const char *name, const char *title, const float *weights, int64_t n);

/* A progress bar on standard error, if that is a terminal. */
void curve_show_progress(int step, int steps, double loss);

#endif
