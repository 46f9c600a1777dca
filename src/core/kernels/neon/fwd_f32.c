/* SPDX-License-Identifier: MIT
 * fwd_f32.c - attn_fwd_f32_neon: the forward kernel in f32, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/neon.h"

#include "../forward.inc.c"

const attn_forward_parts attn_fwd_f32_neon = ATTN_FORWARD_PARTS;
#endif
