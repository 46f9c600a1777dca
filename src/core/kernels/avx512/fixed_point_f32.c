/* SPDX-License-Identifier: MIT
 * fixed_point_f32.c - attn_fixed_point_f32_avx512_vnni: decode over i8 keys and values, and keys of blocks, in integers, for
 * AVX512_VNNI. */
#if defined(__x86_64__) && !defined(ATTN_SCALAR_ONLY)
#define REAL_BITS 32
#include "../vec/avx512.h"

/* Some steps of decode are only building blocks here. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"

#include "../decode.inc.c"

#pragma GCC diagnostic pop

#include "../vec/end.h"

#include "../vec/avx512_fixed_point.h"

#include "../fixed_point_step.inc.c"

#include "../fixed_point_blocks_step.inc.c"

const attn_fixed_point_part attn_fixed_point_f32_avx512_vnni = ATTN_FIXED_POINT_PART;

#include "../vec/end.h"
#endif
