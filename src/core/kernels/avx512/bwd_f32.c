/* SPDX-License-Identifier: MIT
 * bwd_f32.c - attn_bwd_f32_avx512: the backward kernel in f32, with AVX-512 F, BW, DQ and VL; and the same beside scores of bf16,
 * which are the forward kernel's. */
#if defined(__x86_64__)
#define REAL_BITS 32
#include "../vec/avx512.h"

#include "../backward.inc.c"

const attn_bwd_kernel attn_bwd_f32_avx512 = ATTN_BWD_KERNEL;
const attn_bwd_kernel attn_bwd_f32_avx512_bf16 = ATTN_BWD_KERNEL;

#include "../vec/end.h"
#endif
