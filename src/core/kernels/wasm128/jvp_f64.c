/* SPDX-License-Identifier: MIT
 * jvp_f64.c - attn_jvp_f64_wasm128: the forward-mode kernel in f64, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/wasm128.h"

#include "../jvp.inc.c"

const attn_tangent_part attn_jvp_f64_wasm128 = ATTN_TANGENT_PART;
#endif
