/* SPDX-License-Identifier: MIT
 * linear_f64.c - attn_linear_f64_neon: the linear attention kernel in f64, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/neon.h"

#include "../linear.inc.c"

const attn_linear_parts attn_linear_f64_neon = ATTN_LINEAR_PARTS;
#endif
