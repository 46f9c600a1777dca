/* SPDX-License-Identifier: MIT
 * product.h - `attn check` of matrix products: with and without transposes and accumulation, against ref/. */
#ifndef ATTN_TESTING_VERDICT_PRODUCT_H
#define ATTN_TESTING_VERDICT_PRODUCT_H

#include <stddef.h>

#include "matrices.h"

typedef struct product_verdict {
    double max_error, bound_fraction;
    char name[64]; /* "product:33x65x300:at:bt:add" */
} product_verdict;

/* The cases, which cover the remainders of every tile; returns 0 past the last. */
int product_case(int index, ref_matrices *product);

/* Computes a case with one instruction set, and measures its error. */
attn_status product_check(const ref_matrices *product, attn_dtype dtype, const attn_options *options, product_verdict *verdict,
                          attn_error *error);

#endif
