/* SPDX-License-Identifier: MIT
 * formats.h - rows of f32 quantised to f8 and to blocks.  In plain C, so that bits are those of any CPU. */
#ifndef ATTN_WALK_TRANSFER_FORMATS_H
#define ATTN_WALK_TRANSFER_FORMATS_H

#include "attn/types.h"

/* The largest number of the f8 type. */
double attn_f8_largest(attn_dtype dtype);
/* values[c] = x[c] / scale, rounded to the nearest number of the type, ties to even; beyond the largest, it. */
void attn_f8_quantise(attn_dtype dtype, int64_t dim, const float *x, double scale, uint8_t *values);

/* The blocks of dim channels, a multiple of ATTN_BLOCK, by the formulas of ggml's reference (quantize_row_q8_0_ref and so on). */
void attn_blocks_quantise(attn_dtype dtype, int64_t dim, const float *x, uint8_t *blocks);

#endif
