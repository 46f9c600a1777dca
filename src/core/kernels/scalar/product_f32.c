/* SPDX-License-Identifier: MIT
 * product_f32.c - attn_product_f32_scalar: the matrix product kernel in f32, in plain C. */
#define REAL_BITS 32
#include "../vec/scalar.h"

#include "../product.inc.c"

const attn_matrix_part attn_product_f32_scalar = ATTN_MATRIX_PART;
