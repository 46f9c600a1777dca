/* SPDX-License-Identifier: MIT
 * second_f32.c - attn_second_f32_avx2: the second-order kernel in f32, with AVX2 with FMA and F16C. */
#if defined(__x86_64__)
#define REAL_BITS 32
#include "../vec/avx2.h"

#include "../second.inc.c"

const attn_second_part attn_second_f32_avx2 = ATTN_SECOND_PART;

#include "../vec/end.h"
#endif
