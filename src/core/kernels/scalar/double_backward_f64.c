/* SPDX-License-Identifier: MIT
 * double_backward_f64.c - attn_double_backward_f64_scalar: the double backward kernel in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../double_backward.inc.c"

const attn_double_backward_part attn_double_backward_f64_scalar = ATTN_DOUBLE_BACKWARD_PART;
