/* SPDX-License-Identifier: MIT
 * bwd_f64.c - attn_bwd_f64_avx2: the backward kernel in f64, for AVX2 with FMA and F16C. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx2.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f64_avx2 = ATTN_BACKWARD_PARTS;

#include "../vec/end.h"
#endif
