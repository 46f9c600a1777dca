/* SPDX-License-Identifier: MIT
 * double_backward_f64.c - attn_double_backward_f64_wasm128: the double backward kernel in f64, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/wasm128.h"

#include "../double_backward.inc.c"

const attn_double_backward_part attn_double_backward_f64_wasm128 = ATTN_DOUBLE_BACKWARD_PART;
#endif
