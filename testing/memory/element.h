/* SPDX-License-Identifier: MIT
 *
 * element.h - numbers of every storage type to and from double, independent of the library's own conversions.
 *
 * Reading is exact.  Writing rounds once, to nearest, ties to even.
 */
#ifndef ATTN_TESTING_MEMORY_ELEMENT_H
#define ATTN_TESTING_MEMORY_ELEMENT_H

#include <stdint.h>

#include "attn/attn.h"

/* f32, f64, f16, bf16, bool and the integers; booleans read as 0 and 1. */
double element_read(attn_dtype dtype, const void *src);
/* f32, f64, f16, bf16 and i8; a no-op for other types. */
void element_write(attn_dtype dtype, void *dst, double value);
/* dtype: ATTN_I32 or ATTN_I64 */
void element_write_index(attn_dtype dtype, void *dst, int64_t value);
/* The value that reads back after writing. */
double element_round(attn_dtype dtype, double value);

#endif
