/* SPDX-License-Identifier: MIT
 * jvp_f32.c - attn_jvp_f32_avx2: the forward-mode kernel in f32, for AVX2 with FMA and F16C. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx2.h"

#include "../jvp.inc.c"

const attn_tangent_part attn_jvp_f32_avx2 = ATTN_TANGENT_PART;

#include "../vec/end.h"
#endif
