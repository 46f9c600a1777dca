/* SPDX-License-Identifier: MIT
 * double_backward_f32.c - attn_double_backward_f32_scalar: the double backward kernel in f32, in plain C. */
#define REAL_BITS 32
#include "../vec/scalar.h"

#include "../double_backward.inc.c"

const attn_double_backward_part attn_double_backward_f32_scalar = ATTN_DOUBLE_BACKWARD_PART;
