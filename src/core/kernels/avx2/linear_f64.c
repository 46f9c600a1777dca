/* SPDX-License-Identifier: MIT
 * linear_f64.c - attn_linear_f64_avx2: the linear attention kernel in f64, for AVX2 with FMA and F16C. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx2.h"

#include "../linear.inc.c"

const attn_linear_parts attn_linear_f64_avx2 = ATTN_LINEAR_PARTS;

#include "../vec/end.h"
#endif
