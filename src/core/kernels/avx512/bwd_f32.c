/* SPDX-License-Identifier: MIT
 * bwd_f32.c - attn_bwd_f32_avx512: the backward kernel in f32, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx512.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f32_avx512 = ATTN_BACKWARD_PARTS;

#include "../vec/end.h"
#endif
