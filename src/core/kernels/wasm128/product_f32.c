/* SPDX-License-Identifier: MIT
 * product_f32.c - attn_product_f32_wasm128: the matrix product kernel in f32, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/wasm128.h"

#include "../product.inc.c"

const attn_matrix_part attn_product_f32_wasm128 = ATTN_MATRIX_PART;
#endif
