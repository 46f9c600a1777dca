/* SPDX-License-Identifier: MIT
 * double_backward_f64.c - attn_double_backward_f64_avx512: the double backward kernel in f64, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx512.h"

#include "../double_backward.inc.c"

const attn_double_backward_part attn_double_backward_f64_avx512 = ATTN_DOUBLE_BACKWARD_PART;

#include "../vec/end.h"
#endif
