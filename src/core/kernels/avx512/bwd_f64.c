/* SPDX-License-Identifier: MIT
 * bwd_f64.c - attn_bwd_f64_avx512: the backward kernel in f64, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx512.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f64_avx512 = ATTN_BACKWARD_PARTS;

#include "../vec/end.h"
#endif
