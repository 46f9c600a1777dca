/* SPDX-License-Identifier: MIT
 * product_f64.c - attn_product_f64_wasm128: the matrix product kernel in f64, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/wasm128.h"

#include "../product.inc.c"

const attn_matrix_part attn_product_f64_wasm128 = ATTN_MATRIX_PART;
#endif
