/* SPDX-License-Identifier: MIT
 * jvp_f32.c - attn_jvp_f32_neon: the forward-mode kernel in f32, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/neon.h"

#include "../jvp.inc.c"

const attn_tangent_part attn_jvp_f32_neon = ATTN_TANGENT_PART;
#endif
