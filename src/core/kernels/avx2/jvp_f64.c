/* SPDX-License-Identifier: MIT
 * jvp_f64.c - attn_jvp_f64_avx2: the forward-mode kernel in f64, for AVX2 with FMA and F16C. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx2.h"

#include "../jvp.inc.c"

const attn_tangent_part attn_jvp_f64_avx2 = ATTN_TANGENT_PART;

#include "../vec/end.h"
#endif
