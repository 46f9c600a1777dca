/* SPDX-License-Identifier: MIT
 * double_backward_f64.c - attn_double_backward_f64_neon: the second-order kernel in f64, with NEON. */
#if defined(__aarch64__)
#define REAL_BITS 64
#include "../vec/neon.h"

#include "../double_backward.inc.c"

const attn_double_backward_part attn_double_backward_f64_neon = ATTN_DOUBLE_BACKWARD_PART;
#endif
