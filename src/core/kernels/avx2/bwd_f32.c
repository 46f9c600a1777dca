/* SPDX-License-Identifier: MIT
 * bwd_f32.c - attn_bwd_f32_avx2: the backward kernel in f32, for AVX2 with FMA and F16C. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx2.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f32_avx2 = ATTN_BACKWARD_PARTS;

#include "../vec/end.h"
#endif
