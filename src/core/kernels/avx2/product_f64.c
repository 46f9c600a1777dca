/* SPDX-License-Identifier: MIT
 * product_f64.c - attn_product_f64_avx2: the matrix product kernel in f64, for AVX2 with FMA and F16C. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx2.h"

#include "../product.inc.c"

const attn_matrix_part attn_product_f64_avx2 = ATTN_MATRIX_PART;

#include "../vec/end.h"
#endif
