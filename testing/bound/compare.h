/* SPDX-License-Identifier: MIT
 *
 * compare.h - holds outputs against the expectation, number by number, each against its own bound.
 */
#ifndef ATTN_TESTING_BOUND_COMPARE_H
#define ATTN_TESTING_BOUND_COMPARE_H

#include <stddef.h>

#include "expect.h"

/* Outputs as dense doubles; lse and weights may be NULL. */
typedef struct outputs {
    const double *O, *lse, *P;
    attn_dtype o_dtype, weights_dtype;
    int decoded; /* by a kernel of decode */
} outputs;

typedef struct comparison {
    int failed;
    double fraction;   /* the largest error as a fraction of its bound; infinity where an exact number is not exact */
    double error;      /* the largest absolute error of O where it is finite */
    const char *where; /* "o", "lse", "weights", "grad_q", ...: where the fraction is largest */
    int64_t at[4];     /* and there: b, h, i, and channel or key */
    double got, expected, bound;
} comparison;

/*
 * A number that is not finite in the reference must not be finite in the output and the other way round; NaN must be NaN.  A
 * reference that its storage type cannot hold may be infinite.  block_kv is that of the plan.  0 where memory is out.
 */
int compare_outputs(comparison *c, const expectation *e, const outputs *got, int64_t block_kv);

/* Enters a dense array of numbers, each with its own bound, into a comparison that has begun: {0}. */
void compare_numbers(comparison *c, const char *where, const int64_t size[4], const double *got, const double *expected,
                     const double *bound, attn_dtype dtype);

/* Scores of a stage before the softmax, and how far each may be off: [batch][heads_q][len_q][len_kv].  0 where memory is out. */
int expected_scores(const expectation *e, attn_stage stage, double *exact, double *bound);

/* "o[0,1,5,3] = 1.25, expected 1.2 +- 1e-06": at most `size` bytes. */
void comparison_describe(const comparison *c, char *text, size_t size);

#endif
