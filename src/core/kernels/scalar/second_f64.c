/* SPDX-License-Identifier: MIT
 * second_f64.c - attn_second_f64_scalar: the second-order kernel in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../second.inc.c"

const attn_second_part attn_second_f64_scalar = ATTN_SECOND_PART;
