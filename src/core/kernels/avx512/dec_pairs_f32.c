/* SPDX-License-Identifier: MIT
 * dec_pairs_f32.c - attn_dec_pairs_f32_avx512_bf16: decode scores from bf16 without conversion, for AVX512_BF16. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx512.h"

/* Some steps of decode are only building blocks here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "../decode.inc.c"

#pragma GCC diagnostic pop

#include "../decode_pairs_step.inc.c"

const attn_decode_pairs_part attn_dec_pairs_f32_avx512_bf16 = ATTN_DECODE_PAIRS_PART;

#include "../vec/end.h"
#endif
