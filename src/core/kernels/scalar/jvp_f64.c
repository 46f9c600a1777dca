/* SPDX-License-Identifier: MIT
 * jvp_f64.c - attn_jvp_f64_scalar: the forward-mode kernel in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../jvp.inc.c"

const attn_tangent_part attn_jvp_f64_scalar = ATTN_TANGENT_PART;
