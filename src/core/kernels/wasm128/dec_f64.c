/* SPDX-License-Identifier: MIT
 * dec_f64.c - attn_dec_f64_wasm128: the decode kernel in f64, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/wasm128.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f64_wasm128 = ATTN_DECODE_PART;
#endif
