/* SPDX-License-Identifier: MIT
 * names.h - element types and instruction sets: sizes, names, and reading index arrays of either width. */
#ifndef ATTN_BASE_NAMES_H
#define ATTN_BASE_NAMES_H

#include "../../common/formats.h"
#include "attn/attn.h"

/* What attn_dtype_size, attn_dtype_name and attn_isa_name return. */
size_t attn_dtype_bytes(attn_dtype dtype);
const char *attn_dtype_text(attn_dtype dtype);
const char *attn_isa_text(attn_isa isa);

/* Bytes of a row of so many channels. */
static inline int64_t attn_row_bytes(attn_dtype dtype, int64_t dim)
{
    return attn_row_elements(dtype, dim) * (int64_t)attn_dtype_bytes(dtype);
}

/* Element i of an array of ATTN_F32 or ATTN_F64. */
static inline double attn_real_at(const void *array, attn_dtype dtype, int64_t i)
{
    return dtype == ATTN_F32 ? (double)((const float *)array)[i] : ((const double *)array)[i];
}

/* Element i of an array of ATTN_F32 or ATTN_F64 = x. */
static inline void attn_real_put(void *array, attn_dtype dtype, int64_t i, double x)
{
    if (dtype == ATTN_F32) ((float *)array)[i] = (float)x;
    else ((double *)array)[i] = x;
}

/* Element b of an array of ATTN_I32 or ATTN_I64. */
static inline int64_t attn_index_at(const void *array, attn_dtype dtype, int64_t b)
{
    return dtype == ATTN_I32 ? ((const int32_t *)array)[b] : ((const int64_t *)array)[b];
}

/* The end of a message that rejects an element: arrays of i32 without a type are read as i64, two elements at once. */
static inline const char *attn_index_hint(attn_dtype dtype, int64_t element)
{
    const int wide = element < INT32_MIN || element > INT32_MAX;
    return dtype != ATTN_I32 && wide ? "; the array was read as i64 (set its dtype if it is i32)" : "";
}

#endif
