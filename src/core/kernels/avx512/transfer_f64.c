/* SPDX-License-Identifier: MIT
 * transfer_f64.c - attn_transfer_f64_avx512: rows rotated, converted and quantised in f64, for AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 64
#include "../vec/avx512.h"

#include "../transfer.inc.c"

const attn_transfer_part attn_transfer_f64_avx512 = ATTN_TRANSFER_PART;

#include "../vec/end.h"
#endif
