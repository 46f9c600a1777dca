/* SPDX-License-Identifier: MIT
 * bwd_f32.c - attn_bwd_f32_neon: the backward kernel in f32, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/neon.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f32_neon = ATTN_BACKWARD_PARTS;
#endif
