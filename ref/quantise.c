/* SPDX-License-Identifier: MIT
 * quantise.c - rows quantised to int8, each row with its scale. */
#include <math.h>

#include "attn_ref.h"

double ref_quantise(int64_t n, const double *x, double *quantised)
{
    double most = 0;
    int finite = 1;
    for (int64_t c = 0; c < n; c++) {
        if (!isfinite(x[c])) finite = 0;
        if (fabs(x[c]) > most) most = fabs(x[c]);
    }
    const double scale = finite ? (double)(float)(most / 127) : NAN;
    for (int64_t c = 0; c < n; c++) {
        double steps = scale > 0 ? nearbyint(x[c] / scale) : 0;
        quantised[c] = steps > 127 ? 127 : steps < -127 ? -127 : steps;
    }
    return scale;
}

void ref_dequantise(int64_t rows, int64_t n, const double *quantised, const double *scale, double *x)
{
    for (int64_t j = 0; j < rows; j++)
        for (int64_t c = 0; c < n; c++) x[j * n + c] = scale[j] * quantised[j * n + c];
}
