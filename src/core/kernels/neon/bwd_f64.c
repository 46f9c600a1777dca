/* SPDX-License-Identifier: MIT
 * bwd_f64.c - attn_bwd_f64_neon: the backward kernel in f64, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/neon.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f64_neon = ATTN_BACKWARD_PARTS;
#endif
