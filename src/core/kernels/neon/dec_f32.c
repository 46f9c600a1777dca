/* SPDX-License-Identifier: MIT
 * dec_f32.c - attn_dec_f32_neon: the decode kernel in f32, and keys by channel, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/neon.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f32_neon = ATTN_DECODE_PART;
const attn_channels_part attn_channels_f32_neon = ATTN_CHANNELS_PART;
#endif
