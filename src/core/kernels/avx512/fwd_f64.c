/* SPDX-License-Identifier: MIT
 * fwd_f64.c - attn_fwd_f64_avx512: the forward kernel in f64, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx512.h"

#include "../forward.inc.c"

const attn_forward_parts attn_fwd_f64_avx512 = ATTN_FORWARD_PARTS;

#include "../vec/end.h"
#endif
