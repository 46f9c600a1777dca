/* SPDX-License-Identifier: MIT
 * dec_f64.c - attn_dec_f64_avx2: the decode kernel in f64, for AVX2 with FMA and F16C. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx2.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f64_avx2 = ATTN_DECODE_PART;

#include "../vec/end.h"
#endif
