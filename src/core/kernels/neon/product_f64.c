/* SPDX-License-Identifier: MIT
 * product_f64.c - attn_product_f64_neon: the matrix product kernel in f64, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/neon.h"

#include "../product.inc.c"

const attn_matrix_part attn_product_f64_neon = ATTN_MATRIX_PART;
#endif
