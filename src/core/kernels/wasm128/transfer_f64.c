/* SPDX-License-Identifier: MIT
 * transfer_f64.c - attn_transfer_f64_wasm128: rows rotated, converted and quantised in f64, for WebAssembly. */
#if defined(__wasm_simd128__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/wasm128.h"

#include "../transfer.inc.c"

const attn_transfer_part attn_transfer_f64_wasm128 = ATTN_TRANSFER_PART;
#endif
