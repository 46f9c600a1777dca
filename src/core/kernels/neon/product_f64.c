/* SPDX-License-Identifier: MIT
 * product_f64.c - attn_product_f64_neon: the kernel of matrix products in f64, with NEON. */
#if defined(__aarch64__)
#define REAL_BITS 64
#include "../vec/neon.h"

#include "../product.inc.c"

const attn_matrix_part attn_product_f64_neon = ATTN_MATRIX_PART;
#endif
