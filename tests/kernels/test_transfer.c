/* SPDX-License-Identifier: MIT
 *
 * test_transfer.c - rows on their way: every number has the bits of its definition in double, rounded once, whatever the kernel.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernel_test.h"

static const attn_dtype types[] = {ATTN_F32, ATTN_F64, ATTN_F16, ATTN_BF16};
static const int64_t dims[] = {0, 1, 3, 8, 31, 64, 130, 300};
enum { TYPES = 4, DIMS = 8, ROWS = 3 };

static int same(attn_dtype dtype, const void *a, const void *b, int64_t at)
{
    const size_t size = (size_t)size_of(dtype);
    const double x = get(dtype, a, at), y = get(dtype, b, at);
    return memcmp((const char *)a + (size_t)at * size, (const char *)b + (size_t)at * size, size) == 0 || (isnan(x) && isnan(y));
}

/* Doubles that are hard to round: of all sizes, near and on ties of the 16-bit types, and beyond their range. */
static double hard(int64_t n)
{
    static const double ends[] = {0,        -0.0,         INFINITY, -INFINITY, NAN,   DBL_MAX,
                                  -DBL_MAX, DBL_TRUE_MIN, FLT_MAX,  65504,     65520, -65519.999};
    const int count = (int)(sizeof ends / sizeof *ends);
    if (n % 5 == 0) return ends[n / 5 % count];
    const double size = ldexp(1, (int)(uniform() * 160)), tie = ldexp(2 * floor(uniform() * 1024) + 1, n % 2 ? -11 : -8);
    if (n % 5 == 1) return uniform() * size;
    return (n % 5 == 2 ? tie : nextafter(tie, n % 5 == 3 ? INFINITY : -INFINITY)) * size;
}

void test_transfer_rows(void **state)
{
    (void)state;
    if (!it.kernel.transfer) return; /* in float */
    for (int f = 0; f < TYPES; f++)
        for (int t = 0; t < TYPES; t++)
            for (int d = 0; d < DIMS; d++) {
                const int64_t dim = dims[d], stride = dim + 1, n = ROWS * stride, size = size_of(types[t]);
                char *x = input(n * size_of(types[f])), *expected = output(n * size), *y = output(n * size);
                for (int64_t i = 0; i < n; i++) put(types[f], x, i, hard(i));
                for (int64_t i = 0; i < n; i++) put(types[t], expected, i, get(types[f], x, i));
                const attn_transfer_rows from = {x, types[f], stride}, to = {y, types[t], stride};
                it.kernel.transfer->convert(ROWS, dim, from, to);
                for (int64_t i = 0; i < n; i++)
                    assert_true(i % stride < dim ? same(types[t], y, expected, i) : untouched(y + i * size, size));
                release_all();
            }
}

/* Pairs side by side, and apart with other channels between them. */
void test_transfer_rotate(void **state)
{
    (void)state;
    if (!it.kernel.transfer) return; /* in float */
    for (int f = 0; f < TYPES; f++)
        for (int t = 0; t < TYPES; t++)
            for (int d = 1; d < DIMS; d++)
                for (int halves = 0; halves < 2; halves++) {
                    const int64_t pairs = dims[d], apart = halves ? pairs + 1 : 1, stride = 2 * pairs + 2, n = ROWS * stride;
                    const double *c = random_input(ATTN_F64, pairs, 1), *s = random_input(ATTN_F64, pairs, 1);
                    void *x = random_input(types[f], n, 3), *expected = output(n * size_of(types[t])),
                         *y = output(n * size_of(types[t]));
                    const attn_transfer_rows from = {x, types[f], stride}, to = {y, types[t], stride};
                    it.kernel.transfer->rotate(ROWS, pairs, apart, c, s, from, to);
                    for (int64_t i = 0; i < ROWS * pairs; i++) {
                        const int64_t p = i % pairs, at = i / pairs * stride + (halves ? p : 2 * p);
                        const double a = get(types[f], x, at), b = get(types[f], x, at + apart);
                        put(types[t], expected, at, a * c[p] - b * s[p]);
                        put(types[t], expected, at + apart, a * s[p] + b * c[p]);
                        assert_true(same(types[t], y, expected, at) && same(types[t], y, expected, at + apart));
                    }
                    release_all();
                }
}

/* Within 1.5 units in the last place of 1, and for angles that are too large those of libm; alone and among others. */
void test_transfer_angles(void **state)
{
    enum { PAIRS = 37 };
    static const double positions[] = {0, 1, 2, -3, 511, 4095, 1e5, 131071.5, 999999, 1e6, 3e6, 1e9, -1e15, 9e18};
    (void)state;
    if (!it.kernel.transfer) return; /* in float */
    for (size_t k = 0; k < sizeof positions / sizeof *positions; k++) {
        const double magnitude = k % 2 ? 1.25 : 1, at = positions[k];
        double *f = input(PAIRS * 8), *c = output(PAIRS * 8), *s = output(PAIRS * 8);
        for (int i = 0; i < PAIRS; i++) f[i] = i < 20 ? pow(10000, -i / 20.0) : i == 20 ? INFINITY : fabs(uniform());
        it.kernel.transfer->angles(PAIRS, at, f, magnitude, c, s);
        for (int i = 0; i < PAIRS; i++) {
            const double angle = at * f[i];
            double one_c, one_s;
            it.kernel.transfer->angles(1, at, f + i, magnitude, &one_c, &one_s);
            assert_true(same(ATTN_F64, &one_c, c + i, 0) && same(ATTN_F64, &one_s, s + i, 0));
            if (!isfinite(angle)) {
                assert_true(isnan(c[i]) && isnan(s[i]));
                continue;
            }
            assert_true(fabs(c[i] - magnitude * cos(angle)) <= 0x1.8p-52 * magnitude);
            assert_true(fabs(s[i] - magnitude * sin(angle)) <= 0x1.8p-52 * magnitude);
        }
        assert_true(at != 0 || (c[0] == magnitude && s[0] == 0));
        release_all();
    }
}

void test_transfer_quantise(void **state)
{
    (void)state;
    if (!it.kernel.transfer) return; /* in float */
    for (int t = 0; t < TYPES; t++)
        for (int d = 0; d < DIMS; d++)
            for (int kind = 0; kind < 4; kind++) { /* random, 0, with an infinity, with a NaN */
                const int64_t dim = dims[d];
                char *x = random_input(types[t], dim, kind == 1 ? 0 : 5);
                int8_t *y = output(dim);
                float scale = -1;
                double most = 0;
                if (kind > 1 && dim) put(types[t], x, dim - 1, kind == 2 ? -INFINITY : NAN);
                it.kernel.transfer->quantise(dim, x, types[t], y, &scale);
                for (int64_t i = 0; i < dim; i++) most = fmax(most, fabs(get(types[t], x, i)));
                const float step = (float)(most / 127);
                assert_true(kind > 1 && dim ? isnan(scale) : scale == step);
                for (int64_t i = 0; i < dim; i++) {
                    const double steps = scale > 0 ? nearbyint(get(types[t], x, i) / (double)step) : 0;
                    assert_int_equal(y[i], (int)fmax(-127, fmin(127, steps)));
                }
                release_all();
            }
}
