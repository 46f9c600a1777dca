/* SPDX-License-Identifier: MIT
 * convert.c - attn_convert. */
#include "../base/element.h"

void attn_convert(void *dst, attn_dtype dst_dtype, const void *src, attn_dtype src_dtype, int64_t count)
{
    if (!attn_is_float(dst_dtype) || !attn_is_float(src_dtype)) return;
    for (int64_t i = 0; i < count; i++) attn_element_put(dst, dst_dtype, i, attn_element_get(src, src_dtype, i));
}
