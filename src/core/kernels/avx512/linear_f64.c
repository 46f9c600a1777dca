/* SPDX-License-Identifier: MIT
 * linear_f64.c - attn_linear_f64_avx512: the linear attention kernel in f64, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx512.h"

#include "../linear.inc.c"

const attn_linear_parts attn_linear_f64_avx512 = ATTN_LINEAR_PARTS;

#include "../vec/end.h"
#endif
