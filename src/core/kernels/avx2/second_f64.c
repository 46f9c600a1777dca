/* SPDX-License-Identifier: MIT
 * second_f64.c - attn_second_f64_avx2: the second-order kernel in f64, with AVX2 with FMA and F16C. */
#if defined(__x86_64__)
#define REAL_BITS 64
#include "../vec/avx2.h"

#include "../second.inc.c"

const attn_second_part attn_second_f64_avx2 = ATTN_SECOND_PART;

#include "../vec/end.h"
#endif
