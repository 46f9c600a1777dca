/* SPDX-License-Identifier: MIT
 * dec_f64.c - attn_dec_f64_scalar: the decode kernel in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../decode.inc.c"

const attn_decode_part attn_dec_f64_scalar = ATTN_DECODE_PART;
