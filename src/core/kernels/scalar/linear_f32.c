/* SPDX-License-Identifier: MIT
 * linear_f32.c - attn_linear_f32_scalar: the linear attention kernel in f32, in plain C. */
#define REAL_BITS 32
#include "../vec/scalar.h"

#include "../linear.inc.c"

const attn_linear_parts attn_linear_f32_scalar = ATTN_LINEAR_PARTS;
