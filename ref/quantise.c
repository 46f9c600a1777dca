/* SPDX-License-Identifier: MIT
 * quantise.c - rows quantised: to int8, each row with its scale; to f8; to ggml's blocks; and keys by channel. */
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

double ref_f8_value(ref_format format, int byte)
{
    const int bits = format == REF_E4M3 ? 3 : 2, bias = format == REF_E4M3 ? 7 : 15;
    const int exponent = (byte & 0x7f) >> bits, fraction = byte & ((1 << bits) - 1);
    const double sign = byte & 0x80 ? -1 : 1;
    if (format == REF_E4M3 && (byte & 0x7f) == 0x7f) return NAN;
    if (format == REF_E5M2 && exponent == 31) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - bits);
    return sign * ldexp((1 << bits) + fraction, exponent - bias - bits);
}

/* The finite number that is nearest, found by trying all; of two, the one whose last bit is 0. */
int ref_f8_of(ref_format format, double x)
{
    const int sign = signbit(x) ? 0x80 : 0;
    int best = 0;
    if (isnan(x)) return format == REF_E4M3 ? sign | 0x7f : sign | 0x7e;
    if (isinf(x)) return format == REF_E4M3 ? sign | 0x7f : sign | 0x7c;
    const double size = fmin(fabs(x), format == REF_E4M3 ? 448 : 57344); /* else all are equally far from 2^100 */
    for (int byte = 1; byte < 0x80 && isfinite(ref_f8_value(format, byte)); byte++) {
        const double now = fabs(size - ref_f8_value(format, best)), next = fabs(size - ref_f8_value(format, byte));
        if (next < now || (next == now && byte % 2 == 0)) best = byte;
    }
    return sign | best;
}

/* Every operation is rounded to f32, as ggml's are. */
static double f32(double x) { return (double)(float)x; }

void ref_block_steps(ref_format format, const double *x, int *steps, double *d, double *m)
{
    double least = x[0], most = x[0], far = 0;
    int finite = 1;
    for (int c = 0; c < REF_BLOCK; c++) {
        finite = finite && isfinite(x[c]);
        least = fmin(least, x[c]);
        most = fmax(most, x[c]);
        if (fabs(x[c]) > fabs(far)) far = x[c];
    }
    *m = format == REF_Q4_1 ? least : 0;
    *d = format == REF_Q8_0 ? f32(fabs(far) / 127) : format == REF_Q4_0 ? f32(far / -8) : f32(f32(most - least) / 15);
    const double inverse = *d == 0 || isinf(f32(1 / *d)) ? 0 : f32(1 / *d);
    for (int c = 0; c < REF_BLOCK; c++) {
        if (!finite) steps[c] = 0;
        else if (format == REF_Q8_0) steps[c] = (int)round(f32(x[c] * inverse));
        else if (format == REF_Q4_0) steps[c] = (int)fmin(15, floor(f32(f32(x[c] * inverse) + 8.5)));
        else steps[c] = (int)fmin(15, floor(f32(f32(f32(x[c] - least) * inverse) + 0.5)));
    }
    if (!finite) *d = NAN, *m = 0;
}

double ref_block_value(ref_format format, double d, double m, int step)
{
    return format == REF_Q8_0 ? d * step : format == REF_Q4_0 ? d * (step - 8) : f32(d * step + m);
}

double ref_f16(double x)
{
    int exponent;
    if (x == 0 || !isfinite(x)) return x;
    (void)frexp(x, &exponent); /* |x| is below 2^exponent, and at least half of it */
    const double unit = ldexp(1, (exponent < -13 ? -13 : exponent) - 11), rounded = nearbyint(x / unit) * unit;
    return fabs(rounded) > 65504 ? copysign(INFINITY, x) : rounded;
}

void ref_keys_by_channel(int64_t n, int64_t dim, const double *x, double *stored)
{
    for (int64_t i = 0; i < n * dim; i++) stored[i] = ref_f16(x[i]);
    for (int64_t first = 0; first + REF_BLOCK <= n; first += REF_BLOCK)
        for (int64_t c = 0; c < dim; c++) {
            double channel[REF_BLOCK], d, m;
            int steps[REF_BLOCK];
            for (int t = 0; t < REF_BLOCK; t++) channel[t] = stored[(first + t) * dim + c];
            ref_block_steps(REF_Q4_1, channel, steps, &d, &m);
            for (int t = 0; t < REF_BLOCK; t++)
                stored[(first + t) * dim + c] = ref_block_value(REF_Q4_1, ref_f16(d), ref_f16(m), steps[t]);
        }
}

void ref_hadamard(int64_t n, const double *x, double *y)
{
    for (int64_t a = 0; a < n; a++) {
        double sum = 0;
        for (int64_t b = 0; b < n; b++) {
            int odd = 0;
            for (int64_t common = a & b; common; common &= common - 1) odd = !odd;
            sum += odd ? -x[b] : x[b];
        }
        y[a] = sum / sqrt((double)n);
    }
}
