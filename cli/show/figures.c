/* SPDX-License-Identifier: MIT
 * figures.c - smallest, largest, mean and norm of the numbers of a tensor. */
#include <math.h>

#include "show.h"

figures figures_of(const tensor_view *v)
{
    figures f = {.count = tensor_view_count(v), .least = NAN, .largest = NAN, .mean = NAN, .norm = NAN};
    double sum = 0, squares = 0, most = 0;
    for (int64_t n = 0; n < f.count; n++) {
        const double x = tensor_view_number(v->tensor, tensor_view_at(v, n, NULL));
        f.nan += isnan(x);
        f.inf += isinf(x) != 0;
        if (!isfinite(x)) continue;
        f.least = fmin(f.least, x); /* of NAN and a number the number */
        f.largest = fmax(f.largest, x);
        most = fmax(most, fabs(x));
    }
    const int64_t finite = f.count - f.nan - f.inf;
    int exponent = 0;
    (void)frexp(most, &exponent); /* sums of numbers within +-1 overflow nowhere */
    for (int64_t n = 0; n < f.count; n++) {
        const double x = tensor_view_number(v->tensor, tensor_view_at(v, n, NULL));
        if (!isfinite(x)) continue;
        const double scaled = ldexp(x, -exponent);
        sum += scaled;
        squares += scaled * scaled;
    }
    if (finite) f.mean = ldexp(sum / (double)finite, exponent);
    if (finite) f.norm = ldexp(sqrt(squares), exponent);
    return f;
}
