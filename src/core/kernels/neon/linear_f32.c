/* SPDX-License-Identifier: MIT
 * linear_f32.c - attn_linear_f32_neon: the linear attention kernel in f32, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/neon.h"

#include "../linear.inc.c"

const attn_linear_parts attn_linear_f32_neon = ATTN_LINEAR_PARTS;
#endif
