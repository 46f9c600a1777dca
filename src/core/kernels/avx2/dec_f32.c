/* SPDX-License-Identifier: MIT
 * dec_f32.c - attn_dec_f32_avx2: the decode kernel in f32, and keys by channel, for AVX2 with FMA and F16C. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx2.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f32_avx2 = ATTN_DECODE_PART;
const attn_channels_part attn_channels_f32_avx2 = ATTN_CHANNELS_PART;

#include "../vec/end.h"
#endif
