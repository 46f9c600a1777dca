/* SPDX-License-Identifier: MIT
 * product_f32.c - attn_product_f32_avx512: the kernel of matrix products in f32, with AVX-512 F, BW, DQ and VL. */
#if defined(__x86_64__)
#define REAL_BITS 32
#include "../vec/avx512.h"

#include "../product.inc.c"

const attn_product_kernel attn_product_f32_avx512 = ATTN_PRODUCT_KERNEL;

#include "../vec/end.h"
#endif
