/* SPDX-License-Identifier: MIT
 * transfer_f64.c - attn_transfer_f64_neon: rows rotated, converted and quantised in f64, for NEON. */
#if defined(__aarch64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/neon.h"

#include "../transfer.inc.c"

const attn_transfer_part attn_transfer_f64_neon = ATTN_TRANSFER_PART;
#endif
