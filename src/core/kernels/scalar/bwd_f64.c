/* SPDX-License-Identifier: MIT
 * bwd_f64.c - attn_bwd_f64_scalar: the backward kernel in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f64_scalar = ATTN_BACKWARD_PARTS;
