/* SPDX-License-Identifier: MIT
 * bwd_f32.c - attn_bwd_f32_scalar: the backward kernel in f32, in plain C. */
#define REAL_BITS 32
#include "../vec/scalar.h"

#include "../backward.inc.c"

const attn_backward_parts attn_bwd_f32_scalar = ATTN_BACKWARD_PARTS;
