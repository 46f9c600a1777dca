/* SPDX-License-Identifier: MIT
 * convert.c - between the forms of a mask: keep, drop, additive. */
#include "attn/mask.h"

void attn_mask_keep_from_drop(unsigned char *keep, const unsigned char *drop, int64_t count)
{
    for (int64_t n = 0; n < count; n++) keep[n] = drop[n] == 0;
}

void attn_mask_bias_from_keep(void *bias, attn_dtype dtype, const unsigned char *keep, int64_t count, double fill)
{
    const double none = 0;
    const size_t size = attn_dtype_size(dtype);
    if (dtype < ATTN_F32 || dtype > ATTN_BF16) return;
    for (int64_t n = 0; n < count; n++)
        (void)attn_convert((char *)bias + (size_t)n * size, dtype, keep[n] ? &none : &fill, ATTN_F64, 1, NULL);
}
