/* SPDX-License-Identifier: MIT
 *
 * element.h - numbers of every storage type to and from double, written apart from the library's own conversions.
 *
 * Reading is exact.  Writing rounds once, to nearest, ties to even.
 */
#ifndef ATTN_CLI_CHECK_ELEMENT_H
#define ATTN_CLI_CHECK_ELEMENT_H

#include <stdint.h>

#include "attn/attn.h"

/* f32, f64, f16, bf16, bool and the integers; booleans read as 0 and 1. */
double element_read(attn_dtype dtype, const void *src);
/* f32, f64, f16 and bf16; other types are left alone. */
void element_write(attn_dtype dtype, void *dst, double value);
/* What is read after writing. */
double element_round(attn_dtype dtype, double value);

/* The strides that a layout stands for: dense where all are 0, and 0 for ATTN_BROADCAST. */
void layout_strides(const attn_layout *layout, const int64_t size[4], int64_t stride[4]);

/* Copies a tensor into a dense array in the order [0][1][2][3]. */
void element_gather(const void *base, const attn_layout *layout, const int64_t size[4], double *dst);

/* Packed sequences: entry b has tokens begin[b] .. begin[b+1]-1 of an axis for all of them.  A copy with 0 behind the end of each.
 */
void element_gather_packed(const void *base, const attn_layout *layout, const int64_t size[4], const int64_t *begin, double *dst);

#endif
