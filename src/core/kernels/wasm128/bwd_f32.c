/* SPDX-License-Identifier: MIT
 * bwd_f32.c - attn_bwd_f32_wasm128: the backward kernel in f32, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/wasm128.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f32_wasm128 = ATTN_BACKWARD_PARTS;
#endif
