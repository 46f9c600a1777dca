/* SPDX-License-Identifier: MIT
 * curve.h - what training looked like, as files.  Each returns 0 if it cannot be written. */
#ifndef CURVE_H
#define CURVE_H

#include <stdint.h>

/* FOLDER/loss.csv, and FOLDER/loss.svg on a logarithmic scale. */
int curve_write(const char *folder, const double *losses, int steps);

/* A square matrix, a row a line. */
int curve_write_matrix(const char *folder, const char *name, const float *matrix, int64_t n);

#endif
