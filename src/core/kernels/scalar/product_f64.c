/* SPDX-License-Identifier: MIT
 * product_f64.c - attn_product_f64_scalar: the matrix product kernel in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../product.inc.c"

const attn_matrix_part attn_product_f64_scalar = ATTN_MATRIX_PART;
