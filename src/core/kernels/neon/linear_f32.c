/* SPDX-License-Identifier: MIT
 * linear_f32.c - attn_linear_f32_neon: the kernel of linear attention in f32, with NEON. */
#if defined(__aarch64__)
#define REAL_BITS 32
#include "../vec/neon.h"

#include "../linear.inc.c"

const attn_linear_parts attn_linear_f32_neon = ATTN_LINEAR_PARTS;
#endif
