/* SPDX-License-Identifier: MIT
 * jvp_f32.c - attn_jvp_f32_avx512: the forward-mode kernel in f32, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx512.h"

#include "../jvp.inc.c"

const attn_tangent_part attn_jvp_f32_avx512 = ATTN_TANGENT_PART;

#include "../vec/end.h"
#endif
