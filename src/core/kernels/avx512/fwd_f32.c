/* SPDX-License-Identifier: MIT
 * fwd_f32.c - attn_fwd_f32_avx512: the forward kernel in f32, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx512.h"

#include "../forward.inc.c"

const attn_forward_parts attn_fwd_f32_avx512 = ATTN_FORWARD_PARTS;

#include "../vec/end.h"
#endif
