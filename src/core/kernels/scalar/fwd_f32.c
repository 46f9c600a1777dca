/* SPDX-License-Identifier: MIT
 * fwd_f32.c - attn_fwd_f32_scalar: the forward kernel in f32, in plain C. */
#define REAL_BITS 32
#include "../vec/scalar.h"

#include "../forward.inc.c"

const attn_forward_parts attn_fwd_f32_scalar = ATTN_FORWARD_PARTS;
