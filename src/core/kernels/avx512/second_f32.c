/* SPDX-License-Identifier: MIT
 * second_f32.c - attn_second_f32_avx512: the second-order kernel in f32, with AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#define REAL_BITS 32
#include "../vec/avx512.h"

#include "../second.inc.c"

const attn_second_part attn_second_f32_avx512 = ATTN_SECOND_PART;

#include "../vec/end.h"
#endif
