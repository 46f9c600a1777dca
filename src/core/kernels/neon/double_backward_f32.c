/* SPDX-License-Identifier: MIT
 * double_backward_f32.c - attn_double_backward_f32_neon: the double backward kernel in f32, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/neon.h"

#include "../double_backward.inc.c"

const attn_double_backward_part attn_double_backward_f32_neon = ATTN_DOUBLE_BACKWARD_PART;
#endif
