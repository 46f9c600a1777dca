/* SPDX-License-Identifier: MIT
 *
 * metric.c - metrics: construction, inversion, and the check that a matrix is a metric.
 *
 * The two linear algebra routines are written out here because libattn depends on nothing but libc: LAPACK has both, but would
 * make every program that links attention link a BLAS and a Fortran runtime, for matrices of a head's size.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

attn_status attn_metric_scaled(int64_t dim, double scale, double *g, attn_error *error)
{
    TRY(bilinear_check_sizes(0, dim, error));
    CHECK(isfinite(scale), ATTN_ERR_ARGUMENT, "scale is %g; it must be finite", scale);
    CHECK_POINTER(g);
    if (scale == 0) scale = 1 / sqrt((double)dim);
    for (int64_t i = 0; i < dim * dim; i++) g[i] = i % (dim + 1) == 0 ? scale : 0;
    return succeed(error);
}

attn_status attn_metric_diagonal(int64_t dim, const double *diagonal, double *g, attn_error *error)
{
    TRY(bilinear_check_sizes(0, dim, error));
    CHECK_POINTER(diagonal);
    CHECK_POINTER(g);
    CHECK_NO_OVERLAP(OUT(g, dim, dim), IN(diagonal, 1, dim));
    for (int64_t i = 0; i < dim * dim; i++) g[i] = i % (dim + 1) == 0 ? diagonal[i / dim] : 0;
    return succeed(error);
}

attn_status attn_metric_learned(int64_t rows, int64_t dim, const double *w, double *g, attn_error *error)
{
    TRY(bilinear_check_sizes(rows, dim, error));
    CHECK_POINTER(w);
    CHECK_POINTER(g);
    CHECK_NO_OVERLAP(OUT(g, dim, dim), IN(w, rows, dim));
    memset(g, 0, (size_t)(dim * dim) * sizeof *g);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t a = 0; a < dim; a++)
            for (int64_t b = 0; b < dim; b++) g[a * dim + b] += w[r * dim + a] * w[r * dim + b];
    return succeed(error);
}

attn_status attn_metric_learned_backward(int64_t rows, int64_t dim, const double *w, const double *grad_g, double *grad_w,
                                         attn_error *error)
{
    TRY(bilinear_check_sizes(rows, dim, error));
    CHECK_POINTER(w);
    CHECK_POINTER(grad_g);
    CHECK_POINTER(grad_w);
    CHECK_NO_OVERLAP(OUT(grad_w, rows, dim), IN(w, rows, dim), IN(grad_g, dim, dim));
    memset(grad_w, 0, (size_t)(rows * dim) * sizeof *grad_w);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t a = 0; a < dim; a++)
            for (int64_t b = 0; b < dim; b++) grad_w[r * dim + b] += w[r * dim + a] * (grad_g[a * dim + b] + grad_g[b * dim + a]);
    return succeed(error);
}

static attn_status check_finite(int64_t dim, const double *g, attn_error *error)
{
    for (int64_t i = 0; i < dim * dim; i++)
        CHECK(isfinite(g[i]), ATTN_ERR_ARGUMENT, "metric[%" PRId64 "][%" PRId64 "] is %g; it must be finite", i / dim, i % dim,
              g[i]);
    return ATTN_OK;
}

static void swap_rows(double *m, int64_t dim, int64_t a, int64_t b)
{
    for (int64_t c = 0; a != b && c < dim; c++) {
        const double t = m[a * dim + c];
        m[a * dim + c] = m[b * dim + c];
        m[b * dim + c] = t;
    }
}

/* Gauss-Jordan: m becomes I while `inverse` goes from I to m^-1.  Returns the column without a pivot, or -1. */
static int64_t eliminate(int64_t dim, double *m, double *inverse)
{
    for (int64_t i = 0; i < dim * dim; i++) inverse[i] = i % (dim + 1) == 0;
    for (int64_t k = 0; k < dim; k++) {
        int64_t best = k;
        for (int64_t r = k + 1; r < dim; r++)
            if (fabs(m[r * dim + k]) > fabs(m[best * dim + k])) best = r;
        const double pivot = m[best * dim + k];
        if (pivot == 0) return k;
        swap_rows(m, dim, k, best);
        swap_rows(inverse, dim, k, best);
        for (int64_t c = 0; c < dim; c++) m[k * dim + c] /= pivot, inverse[k * dim + c] /= pivot;
        for (int64_t r = 0; r < dim; r++) {
            const double factor = m[r * dim + k];
            if (r == k || factor == 0) continue;
            for (int64_t c = 0; c < dim; c++) {
                m[r * dim + c] -= factor * m[k * dim + c];
                inverse[r * dim + c] -= factor * inverse[k * dim + c];
            }
        }
    }
    return -1;
}

/* The largest column sum of absolute values. */
static double norm(int64_t dim, const double *m)
{
    double most = 0;
    for (int64_t c = 0; c < dim; c++) {
        double sum = 0;
        for (int64_t r = 0; r < dim; r++) sum += fabs(m[r * dim + c]);
        if (!(sum <= most)) most = sum; /* NaN stays */
    }
    return most;
}

attn_status attn_metric_inverse(int64_t dim, const double *g, double *inverse, attn_error *error)
{
    TRY(bilinear_check_sizes(0, dim, error));
    CHECK_POINTER(g);
    CHECK_POINTER(inverse);
    CHECK_NO_OVERLAP(OUT(inverse, dim, dim), IN(g, dim, dim));
    TRY(check_finite(dim, g, error));
    const size_t bytes = (size_t)(dim * dim) * sizeof *g;
    double *m = malloc(bytes), *found = malloc(bytes);
    attn_status status = m && found ? ATTN_OK : fail(error, ATTN_ERR_MEMORY, "cannot allocate a matrix of dim %" PRId64, dim);
    if (status == ATTN_OK) {
        memcpy(m, g, bytes);
        const int64_t column = eliminate(dim, m, found);
        const double condition = column < 0 ? norm(dim, g) * norm(dim, found) : INFINITY;
        if (column >= 0) status = fail(error, ATTN_ERR_ARGUMENT, "metric is singular: no pivot for column %" PRId64, column);
        else if (!(condition < 1 / (DBL_EPSILON * (double)dim)))
            status = fail(error, ATTN_ERR_ARGUMENT, "metric is singular within rounding: its condition number is %.3g", condition);
        else memcpy(inverse, found, bytes);
    }
    free(m);
    free(found);
    return status == ATTN_OK ? succeed(error) : status;
}

attn_status attn_metric_inverse_backward(int64_t dim, const double *inverse, const double *grad_inverse, double *grad_g,
                                         attn_error *error)
{
    TRY(bilinear_check_sizes(0, dim, error));
    CHECK_POINTER(inverse);
    CHECK_POINTER(grad_inverse);
    CHECK_POINTER(grad_g);
    CHECK_NO_OVERLAP(OUT(grad_g, dim, dim), IN(inverse, dim, dim), IN(grad_inverse, dim, dim));
    double *half = calloc((size_t)(dim * dim), sizeof *half); /* grad_inverse inverse^T */
    CHECK(half, ATTN_ERR_MEMORY, "cannot allocate a matrix of dim %" PRId64, dim);
    memset(grad_g, 0, (size_t)(dim * dim) * sizeof *grad_g);
    for (int64_t a = 0; a < dim; a++)
        for (int64_t b = 0; b < dim; b++)
            for (int64_t c = 0; c < dim; c++) half[a * dim + b] += grad_inverse[a * dim + c] * inverse[b * dim + c];
    for (int64_t c = 0; c < dim; c++)
        for (int64_t a = 0; a < dim; a++)
            for (int64_t b = 0; b < dim; b++) grad_g[a * dim + b] -= inverse[c * dim + a] * half[c * dim + b];
    free(half);
    return succeed(error);
}

/*
 * Householder reduction of the symmetric m to a tridiagonal matrix with the same eigenvalues (Golub and Van Loan, 8.3.1):
 * diagonal d, subdiagonal e[1] ...  v and w are scratch of dim elements.
 */
static void make_tridiagonal(int64_t dim, double *m, double *d, double *e, double *v, double *w)
{
    e[0] = 0;
    for (int64_t k = 0; k + 1 < dim; k++) {
        double square = 0, length = 0, dot = 0;
        for (int64_t i = k + 1; i < dim; i++) square += m[i * dim + k] * m[i * dim + k];
        const double alpha = m[(k + 1) * dim + k] > 0 ? -sqrt(square) : sqrt(square);
        e[k + 1] = alpha;
        if (alpha == 0) continue;
        for (int64_t i = k + 1; i < dim; i++) v[i] = m[i * dim + k];
        v[k + 1] -= alpha;
        for (int64_t i = k + 1; i < dim; i++) length += v[i] * v[i];
        if (length == 0) continue;
        for (int64_t i = k + 1; i < dim; i++) {
            w[i] = 0;
            for (int64_t j = k + 1; j < dim; j++) w[i] += m[i * dim + j] * v[j];
            w[i] *= 2 / length;
            dot += v[i] * w[i];
        }
        for (int64_t i = k + 1; i < dim; i++) w[i] -= dot / length * v[i];
        for (int64_t i = k + 1; i < dim; i++)
            for (int64_t j = k + 1; j < dim; j++) m[i * dim + j] -= v[i] * w[j] + w[i] * v[j];
    }
    for (int64_t i = 0; i < dim; i++) d[i] = m[i * dim + i];
}

/* The number of eigenvalues of a tridiagonal matrix below x: the negative pivots of its factorisation (Sturm sequence). */
static int64_t count_below(int64_t dim, const double *d, const double *e, double x)
{
    int64_t count = 0;
    double pivot = 1;
    for (int64_t i = 0; i < dim; i++) {
        pivot = d[i] - x - e[i] * e[i] / pivot;
        if (pivot == 0) pivot = DBL_MIN;
        count += pivot < 0;
    }
    return count;
}

/* Eigenvalue `index` in ascending order, by bisection of an interval that holds all of them, down to neighbouring doubles. */
static double eigenvalue(int64_t dim, const double *d, const double *e, double reach, int64_t index)
{
    double low = -reach, high = reach;
    for (;;) {
        const double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high) return middle;
        if (count_below(dim, d, e, middle) > index) high = middle;
        else low = middle;
    }
}

attn_status attn_metric_check(int64_t dim, double tolerance, const double *g, attn_metric_properties *properties, attn_error *error)
{
    TRY(bilinear_check_sizes(0, dim, error));
    CHECK_POINTER(g);
    CHECK_POINTER(properties);
    CHECK(tolerance >= 0, ATTN_ERR_ARGUMENT, "tolerance is %g; it must be at least 0", tolerance);
    TRY(struct_writable(properties, sizeof *properties, "attn_metric_properties", error));
    TRY(check_finite(dim, g, error));
    double *m = malloc((size_t)(dim * (dim + 4)) * sizeof *m), largest = 0, asymmetry = 0, low = 0, high = 0;
    CHECK(m, ATTN_ERR_MEMORY, "cannot allocate a matrix of dim %" PRId64, dim);
    double *d = m + dim * dim, *e = d + dim, *v = e + dim, *w = v + dim;
    for (int64_t i = 0; i < dim * dim; i++) largest = fmax(largest, fabs(g[i]));
    /* Divided by its largest element, so that no square overflows. */
    for (int64_t a = 0; a < dim && largest > 0; a++)
        for (int64_t b = 0; b < dim; b++) {
            const double one = g[a * dim + b] / largest, other = g[b * dim + a] / largest;
            m[a * dim + b] = (one + other) / 2;
            asymmetry = fmax(asymmetry, fabs(one - other));
        }
    if (largest > 0) {
        const double reach = norm(dim, m); /* a norm bounds every eigenvalue */
        make_tridiagonal(dim, m, d, e, v, w);
        low = eigenvalue(dim, d, e, reach * 1.5, 0) * largest;
        high = eigenvalue(dim, d, e, reach * 1.5, dim - 1) * largest;
    }
    free(m);
    attn_metric_properties p = {.min_eigenvalue = low, .max_eigenvalue = high};
    p.symmetric = asymmetry <= (tolerance > 0 ? tolerance : 1e-6);
    p.positive_definite = low > (double)dim * DBL_EPSILON * fmax(fabs(low), fabs(high));
    p.valid = p.symmetric && p.positive_definite;
    struct_fill(properties, &p, sizeof p);
    return succeed(error);
}
