/* SPDX-License-Identifier: MIT
 * transfer_f64.c - attn_transfer_f64_scalar: rows rotated, converted and quantised in f64, in plain C. */
#define REAL_BITS 64
#include "../vec/scalar.h"

#include "../transfer.inc.c"

const attn_transfer_part attn_transfer_f64_scalar = ATTN_TRANSFER_PART;
