/* SPDX-License-Identifier: MIT
 * by_loops.h - helpers of tests that compare layers with loops in double: results, and gradients by central differences. */
#ifndef ATTN_TESTS_LAYERS_BY_LOOPS_H
#define ATTN_TESTS_LAYERS_BY_LOOPS_H

#include "test.h"

#include <math.h>

#include "attn/types.h"
#include "testing/random/random.h"

/* Element `at` of an array of f64 or f32. */
static inline double get(attn_dtype dtype, const void *from, int64_t at)
{
    return dtype == ATTN_F64 ? ((const double *)from)[at] : (double)((const float *)from)[at];
}

/* The error of sums of numbers of about 1 after this many roundings. */
static inline double roundings(attn_dtype dtype, double many) { return many * (dtype == ATTN_F64 ? 0x1p-53 : 0x1p-24); }

/* Compares `count` results of type dtype with the loops'. */
static inline void assert_close(const char *name, const char *of, attn_dtype dtype, const void *results, const double *expected,
                                int64_t count, double error)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(get(dtype, results, i) - expected[i]) <= error))
            fail_msg("%s, %s: %s[%d] is %.17g, not %.17g", name, attn_dtype_name(dtype), of, (int)i, get(dtype, results, i),
                     expected[i]);
}

/*
 * Compares the gradients of `count` numbers x on which loss(sample) depends with central differences.  With a step e, these are off
 * by e^2 times a third derivative, at most `third`, and by the rounding of sums of at most `size` over 2e.
 */
static inline void assert_gradients(const char *name, const char *of, double *x, const double *gradient, int64_t count,
                                    double (*loss)(void *sample), void *sample, double third, double size)
{
    const double e = 1e-5;
    for (int64_t i = 0; i < count; i++) {
        const double was = x[i];
        x[i] = was + e;
        const double up = loss(sample);
        x[i] = was - e;
        const double slope = (up - loss(sample)) / (2 * e);
        x[i] = was;
        if (!(fabs(gradient[i] - slope) <= third * e * e + size * 0x1p-52 / e))
            fail_msg("%s: gradient of %s[%d] is %.12g, not %.12g", name, of, (int)i, gradient[i], slope);
    }
}

#endif
