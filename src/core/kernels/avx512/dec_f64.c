/* SPDX-License-Identifier: MIT
 * dec_f64.c - attn_dec_f64_avx512: the decode kernel in f64, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx512.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f64_avx512 = ATTN_DECODE_PART;

#include "../vec/end.h"
#endif
