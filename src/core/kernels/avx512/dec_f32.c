/* SPDX-License-Identifier: MIT
 * dec_f32.c - attn_dec_f32_avx512: the decode kernel in f32, and keys by channel, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx512.h"
#include "../vec/avx512_channels.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f32_avx512 = ATTN_DECODE_PART;
const attn_channels_part attn_channels_f32_avx512 = ATTN_CHANNELS_PART;

#include "../vec/end.h"
#endif
