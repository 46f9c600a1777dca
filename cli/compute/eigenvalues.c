/* SPDX-License-Identifier: MIT
 *
 * eigenvalues.c - of a real matrix: elimination to Hessenberg form, then the QR algorithm with single complex shifts (Golub and Van
 * Loan, chapter 7).  LAPACK has them, but it and a Fortran runtime would be the command's largest dependency, for one number. */
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "copying.h"
#include "testing/text/failure.h"

/* A similar matrix without elements below the first subdiagonal. */
static void reduce(int64_t n, double *a)
{
    for (int64_t m = 1; m + 1 < n; m++) {
        int64_t pivot = m;
        for (int64_t i = m + 1; i < n; i++)
            if (fabs(a[i * n + m - 1]) > fabs(a[pivot * n + m - 1])) pivot = i;
        if (a[pivot * n + m - 1] == 0) continue;
        for (int64_t k = 0; pivot != m && k < n; k++) {
            const double x = a[pivot * n + k];
            a[pivot * n + k] = a[m * n + k], a[m * n + k] = x;
        }
        for (int64_t k = 0; pivot != m && k < n; k++) {
            const double x = a[k * n + pivot];
            a[k * n + pivot] = a[k * n + m], a[k * n + m] = x;
        }
        for (int64_t i = m + 1; i < n; i++) {
            const double factor = a[i * n + m - 1] / a[m * n + m - 1];
            for (int64_t k = 0; k < n; k++) a[i * n + k] -= factor * a[m * n + k];
            for (int64_t k = 0; k < n; k++) a[k * n + m] += factor * a[k * n + i];
        }
    }
}

/* The eigenvalue of the last two rows that is nearer to the last element. */
static double complex shift_of(const double complex *h, int64_t n, int64_t high)
{
    const double complex a = h[(high - 1) * n + high - 1], b = h[(high - 1) * n + high], c = h[high * n + high - 1],
                         d = h[high * n + high], half = (a - d) / 2, root = csqrt(half * half + b * c);
    return d - (cabs(half + root) > cabs(half - root) ? b * c / (half + root) : cabs(half - root) > 0 ? b * c / (half - root) : 0);
}

/* One step on rows and columns low .. high: H - shift = Q R, then R Q + shift.  rotations: [2 n]. */
static void step(double complex *h, int64_t n, int64_t low, int64_t high, double complex shift, double complex *rotations)
{
    for (int64_t k = low; k <= high; k++) h[k * n + k] -= shift;
    for (int64_t k = low; k < high; k++) {
        const double complex x = h[k * n + k], y = h[(k + 1) * n + k];
        const double size = hypot(cabs(x), cabs(y));
        const double complex c = size > 0 ? x / size : 1, s = size > 0 ? y / size : 0;
        rotations[2 * k] = c, rotations[2 * k + 1] = s;
        for (int64_t j = k; j <= high; j++) {
            const double complex p = h[k * n + j], q = h[(k + 1) * n + j];
            h[k * n + j] = conj(c) * p + conj(s) * q;
            h[(k + 1) * n + j] = c * q - s * p;
        }
    }
    for (int64_t k = low; k < high; k++) {
        const double complex c = rotations[2 * k], s = rotations[2 * k + 1];
        for (int64_t i = low; i <= k + 1; i++) {
            const double complex p = h[i * n + k], q = h[i * n + k + 1];
            h[i * n + k] = p * c + q * s;
            h[i * n + k + 1] = q * conj(c) - p * conj(s);
        }
    }
    for (int64_t k = low; k <= high; k++) h[k * n + k] += shift;
}

int matrix_eigenvalues(int64_t n, double *matrix, double complex *values)
{
    enum { MOST = 60, UNUSUAL = 10 }; /* steps for an eigenvalue; after how many another shift is tried */
    double complex *h = need_memory(n * n, sizeof *h), *rotations = need_memory(2 * n, sizeof *rotations);
    int64_t high = n - 1;
    int steps = 0;
    reduce(n, matrix);
    for (int64_t k = 0; k < n * n; k++) h[k] = k % n < k / n - 1 ? 0 : matrix[k];
    while (high >= 0 && steps < MOST) {
        int64_t low = high;
        while (low > 0) {
            const double size = cabs(h[low * n + low]) + cabs(h[(low - 1) * n + low - 1]), below = cabs(h[low * n + low - 1]);
            if (below <= DBL_EPSILON * size) break;
            low--;
        }
        if (low == high) {
            values[high] = h[high * n + high];
            high--, steps = 0;
            continue;
        }
        steps++;
        step(h, n, low, high, steps % UNUSUAL ? shift_of(h, n, high) : h[high * n + high] + cabs(h[high * n + high - 1]),
             rotations);
    }
    free(h), free(rotations);
    return high < 0;
}
