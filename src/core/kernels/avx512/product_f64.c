/* SPDX-License-Identifier: MIT
 * product_f64.c - attn_product_f64_avx512: the matrix product kernel in f64, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx512.h"

#include "../product.inc.c"

const attn_matrix_part attn_product_f64_avx512 = ATTN_MATRIX_PART;

#include "../vec/end.h"
#endif
