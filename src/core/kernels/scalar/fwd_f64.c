/* SPDX-License-Identifier: MIT
 * fwd_f64.c - attn_fwd_f64_scalar: the forward kernel in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../forward.inc.c"

const attn_forward_parts attn_fwd_f64_scalar = ATTN_FORWARD_PARTS;
