/* SPDX-License-Identifier: MIT
 * fwd_f32.c - attn_fwd_f32_avx2: the forward kernel in f32, for AVX2 with FMA and F16C. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx2.h"

#include "../forward.inc.c"

const attn_forward_parts attn_fwd_f32_avx2 = ATTN_FORWARD_PARTS;

#include "../vec/end.h"
#endif
