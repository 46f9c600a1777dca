/* SPDX-License-Identifier: MIT
 * dec_f64.c - attn_dec_f64_neon: the decode kernel in f64, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/neon.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f64_neon = ATTN_DECODE_PART;
#endif
