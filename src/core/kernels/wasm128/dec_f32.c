/* SPDX-License-Identifier: MIT
 * dec_f32.c - attn_dec_f32_wasm128: the decode kernel in f32, and keys by channel, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/wasm128.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f32_wasm128 = ATTN_DECODE_PART;
const attn_channels_part attn_channels_f32_wasm128 = ATTN_CHANNELS_PART;
#endif
