/* SPDX-License-Identifier: MIT
 * bwd_f64.c - attn_bwd_f64_scalar: the backward kernel in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../backward.inc.c"

const attn_bwd_kernel attn_bwd_f64_scalar = ATTN_BWD_KERNEL;
