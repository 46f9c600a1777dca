/* SPDX-License-Identifier: MIT
 * jvp_f32.c - attn_jvp_f32_scalar: the forward-mode kernel in f32, in plain C. */
#define REAL_BITS 32
#include "../vec/scalar.h"

#include "../jvp.inc.c"

const attn_tangent_part attn_jvp_f32_scalar = ATTN_TANGENT_PART;
