/* SPDX-License-Identifier: MIT
 * array.c - dense arrays, element by element. */
#include "array.h"

static size_t bytes_of(const array *a)
{
    return (size_t)(a->shape[0] * a->shape[1] * a->shape[2] * a->shape[3]) * attn_dtype_size(a->dtype);
}

array array_make(attn_dtype dtype, int64_t b, int64_t h, int64_t i, int64_t c)
{
    array a = {.dtype = dtype, .shape = {b, h, i, c}, .stride = {h * i * c, i * c, c, 1}};
    a.data = calloc(bytes_of(&a) + 8, 1);
    assert_non_null(a.data);
    return a;
}

char *array_place(const array *a, int64_t b, int64_t h, int64_t i, int64_t c)
{
    return a->data +
           (b * a->stride[0] + h * a->stride[1] + i * a->stride[2] + c * a->stride[3]) * (int64_t)attn_dtype_size(a->dtype);
}

double array_at(const array *a, int64_t b, int64_t h, int64_t i, int64_t c)
{
    const char *at = array_place(a, b, h, i, c);
    double x = 0;
    if (a->dtype == ATTN_BOOL) return *(const unsigned char *)at;
    (void)attn_convert(1, at, a->dtype, &x, ATTN_F64, NULL);
    return x;
}

void array_put(const array *a, int64_t b, int64_t h, int64_t i, int64_t c, double x)
{
    if (a->dtype == ATTN_BOOL) *(unsigned char *)array_place(a, b, h, i, c) = x != 0;
    else if (a->dtype == ATTN_I64) *(int64_t *)(void *)array_place(a, b, h, i, c) = (int64_t)x;
    else (void)attn_convert(1, &x, ATTN_F64, array_place(a, b, h, i, c), a->dtype, NULL);
}
