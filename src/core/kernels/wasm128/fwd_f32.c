/* SPDX-License-Identifier: MIT
 * fwd_f32.c - attn_fwd_f32_wasm128: the forward kernel in f32, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/wasm128.h"

#include "../forward.inc.c"

const attn_forward_parts attn_fwd_f32_wasm128 = ATTN_FORWARD_PARTS;
#endif
