/* SPDX-License-Identifier: MIT
 * pairs_f32.c - attn_pairs_f32_avx512_bf16: scores from bf16 without conversion, for AVX512_BF16. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx512.h"

/* Some steps of forward are only building blocks here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "../forward.inc.c"

#pragma GCC diagnostic pop

#include "../bf16_step.inc.c"

const attn_pairs_part attn_pairs_f32_avx512_bf16 = ATTN_PAIRS_PART;

#include "../vec/end.h"
#endif
