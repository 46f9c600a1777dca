/* SPDX-License-Identifier: MIT
 * linear_f64.c - attn_linear_f64_scalar: the linear attention kernel in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../linear.inc.c"

const attn_linear_parts attn_linear_f64_scalar = ATTN_LINEAR_PARTS;
