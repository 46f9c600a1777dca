/* SPDX-License-Identifier: MIT
 * fwd_f32.c - attn_fwd_f32_avx512: the forward kernel in f32, with AVX-512 F, BW, DQ and VL, and attn_fwd_f32_avx512_bf16, which
 * multiplies queries and keys of bf16 as such. */
#if defined(__x86_64__)
#define REAL_BITS 32
#include "../vec/avx512.h"

#include "../forward.inc.c"

#include "../bf16_step.inc.c"

static const attn_bf16_kernel bf16 = ATTN_BF16_KERNEL;
const attn_fwd_kernel attn_fwd_f32_avx512 = ATTN_FWD_KERNEL;
const attn_fwd_kernel attn_fwd_f32_avx512_bf16 = ATTN_FWD_KERNEL_WITH(&bf16);

#include "../vec/end.h"
#endif
