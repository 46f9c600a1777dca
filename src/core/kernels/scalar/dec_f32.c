/* SPDX-License-Identifier: MIT
 * dec_f32.c - attn_dec_f32_scalar: the decode kernel in f32, and keys by channel, in plain C. */
#define REAL_BITS 32
#include "../vec/scalar.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f32_scalar = ATTN_DECODE_PART;
const attn_channels_part attn_channels_f32_scalar = ATTN_CHANNELS_PART;
