/* SPDX-License-Identifier: MIT
 * bwd_f64.c - attn_bwd_f64_wasm128: the backward kernel in f64, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/wasm128.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f64_wasm128 = ATTN_BACKWARD_PARTS;
#endif
