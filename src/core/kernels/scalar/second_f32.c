/* SPDX-License-Identifier: MIT
 * second_f32.c - attn_second_f32_scalar: the second-order kernel in f32, in plain C. */
#define REAL_BITS 32
#include "../vec/scalar.h"

#include "../second.inc.c"

const attn_second_part attn_second_f32_scalar = ATTN_SECOND_PART;
