/* SPDX-License-Identifier: MIT
 * product_case.h - a product of random matrices that end where mapped memory ends, and its result by definition. */
#ifndef ATTN_TESTS_PRODUCT_CASE_H
#define ATTN_TESTS_PRODUCT_CASE_H

#include "test.h"

#include "testing/verdict/matrices.h"

/* A matrix whose last element is followed by an inaccessible page. */
typedef struct matrix {
    void *map, *data;
    size_t map_bytes;
    double *exact; /* the same numbers in double */
    int64_t elements;
} matrix;

typedef struct product_case {
    ref_matrices by_definition; /* no stride is 0 */
    attn_product_problem problem;
    attn_product_tensors tensors;
    matrix a, b, c;
    double *expected, *bound; /* of every element of C; between rows C stays unchanged */
} product_case;

/* The index-th instruction set of this CPU, for options.isa; ATTN_ISA_DEFAULT after the last. */
attn_isa isa_at(int index, attn_dtype dtype);

/* Strides of 0 are dense. */
product_case *case_create(const ref_matrices *product, attn_dtype dtype, uint64_t seed);
void case_free(product_case *c);
/* Restores C to its numbers before the product. */
void case_reset(product_case *c);
/* The largest error of C as a fraction of its bound.  Fails if something between rows was written. */
double case_error(const product_case *c);
/* Bytes of C from its first element on. */
size_t case_bytes(const product_case *c);

#endif
