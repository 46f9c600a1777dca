/* SPDX-License-Identifier: MIT
 *
 * compare.h - compares outputs with the expectation, number by number, each within its own bound.
 */
#ifndef ATTN_TESTING_BOUND_COMPARE_H
#define ATTN_TESTING_BOUND_COMPARE_H

#include <stddef.h>

#include "expect.h"

/* Outputs as dense doubles; lse and weights may be NULL. */
typedef struct outputs {
    const double *O, *lse, *P;
    attn_dtype o_dtype, weights_dtype;
    int decoded; /* 1: by the decode kernel */
} outputs;

typedef struct comparison {
    int failed;
    double fraction;   /* the largest error as a fraction of its bound; infinity if a number that must be exact is not */
    double error;      /* the largest absolute error of O where it is finite */
    const char *where; /* "o", "lse", "weights", "grad_q", ...: where the fraction is largest */
    int64_t at[4];     /* the indices there: b, h, i, and channel or key */
    double got, expected, bound;
} comparison;

/*
 * A number must be finite in the output exactly if it is in the reference, and NaN must be NaN; but an output whose storage type
 * cannot hold the reference may be infinite.  block_kv is that of the plan.  Returns 0 if out of memory.
 */
int compare_outputs(comparison *c, const expectation *e, const outputs *got, int64_t block_kv);

/* Adds a dense array of numbers, each with its own bound, to a comparison, which starts as {0}. */
void compare_numbers(comparison *c, const char *where, const int64_t size[4], const double *got, const double *expected,
                     const double *bound, attn_dtype dtype);

/* Scores of a stage before the softmax, and the bound of each: [batch][heads_q][len_q][len_kv].  Returns 0 if out of memory. */
int expected_scores(const expectation *e, attn_stage stage, double *exact, double *bound);

/* "o[0,1,5,3] = 1.25, expected 1.2 +- 1e-06": at most `size` bytes. */
void comparison_describe(const comparison *c, char *text, size_t size);

#endif
