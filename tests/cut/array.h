/* SPDX-License-Identifier: MIT
 * array.h - dense arrays, element by element. */
#ifndef ATTN_TESTS_CUT_ARRAY_H
#define ATTN_TESTS_CUT_ARRAY_H

#include "test.h"

#include "attn/attn.h"

/* A dense array of the whole problem: an element is at the sum of index * stride; parts have the same strides. */
typedef struct array {
    char *data;
    attn_dtype dtype;
    int64_t shape[4], stride[4];
} array;

/* Zeros. */
array array_make(attn_dtype dtype, int64_t b, int64_t h, int64_t i, int64_t c);
double array_at(const array *a, int64_t b, int64_t h, int64_t i, int64_t c);
void array_put(const array *a, int64_t b, int64_t h, int64_t i, int64_t c, double x);
/* The address of an element. */
char *array_place(const array *a, int64_t b, int64_t h, int64_t i, int64_t c);

#endif
