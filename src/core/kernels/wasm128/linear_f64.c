/* SPDX-License-Identifier: MIT
 * linear_f64.c - attn_linear_f64_wasm128: the linear attention kernel in f64, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/wasm128.h"

#include "../linear.inc.c"

const attn_linear_parts attn_linear_f64_wasm128 = ATTN_LINEAR_PARTS;
#endif
