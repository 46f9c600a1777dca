/* SPDX-License-Identifier: MIT
 * double_backward_f64.c - attn_double_backward_f64_neon: the double backward kernel in f64, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/neon.h"

#include "../double_backward.inc.c"

const attn_double_backward_part attn_double_backward_f64_neon = ATTN_DOUBLE_BACKWARD_PART;
#endif
