/* SPDX-License-Identifier: MIT
 * product_f32.c - attn_product_f32_neon: the matrix product kernel in f32, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/neon.h"

#include "../product.inc.c"

const attn_matrix_part attn_product_f32_neon = ATTN_MATRIX_PART;
#endif
