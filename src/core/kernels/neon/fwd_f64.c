/* SPDX-License-Identifier: MIT
 * fwd_f64.c - attn_fwd_f64_neon: the forward kernel in f64, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/neon.h"

#include "../forward.inc.c"

const attn_forward_parts attn_fwd_f64_neon = ATTN_FORWARD_PARTS;
#endif
