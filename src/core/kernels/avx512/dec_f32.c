/* SPDX-License-Identifier: MIT
 * dec_f32.c - attn_dec_f32_avx512: the decode kernel in f32, with AVX-512 F, BW, DQ and VL; attn_dec_f32_avx512_bf16, which
 * multiplies queries and keys of bf16 as such; and attn_dec_f32_avx512_vnni, the same for keys and values of i8. */
#if defined(__x86_64__)
#define REAL_BITS 32
#include "../vec/avx512.h"

#include "../decode.inc.c"

const attn_dec_kernel attn_dec_f32_avx512 = ATTN_DEC_KERNEL;

#include "../decode_pairs_step.inc.c"

static const attn_dec_bf16_kernel bf16 = ATTN_DEC_BF16_KERNEL;
const attn_dec_kernel attn_dec_f32_avx512_bf16 = ATTN_DEC_KERNEL_WITH(NULL, &bf16);

#include "../vec/end.h"

#include "../vec/avx512_digits.h"

#include "../digit_step.inc.c"

static const attn_digit_kernel digits = ATTN_DIGIT_KERNEL;
const attn_dec_kernel attn_dec_f32_avx512_vnni = ATTN_DEC_KERNEL_WITH(&digits, NULL);

#include "../vec/end.h"
#endif
