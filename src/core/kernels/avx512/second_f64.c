/* SPDX-License-Identifier: MIT
 * second_f64.c - attn_second_f64_avx512: the second-order kernel in f64, with AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#define REAL_BITS 64
#include "../vec/avx512.h"

#include "../second.inc.c"

const attn_second_part attn_second_f64_avx512 = ATTN_SECOND_PART;

#include "../vec/end.h"
#endif
