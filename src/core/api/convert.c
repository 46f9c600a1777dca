/* SPDX-License-Identifier: MIT
 * convert.c - attn_convert. */
#include <inttypes.h>

#include "../base/element.h"
#include "../base/error.h"
#include "../base/names.h"

static int is_aligned(const void *data, attn_dtype dtype) { return (uintptr_t)data % attn_dtype_bytes(dtype) == 0; }

attn_status attn_convert(int64_t count, const void *src, attn_dtype src_dtype, void *dst, attn_dtype dst_dtype, attn_error *error)
{
    CHECK(attn_is_float(dst_dtype), ATTN_ERR_UNSUPPORTED, "convert: dst is %s; it must be f32, f64, f16 or bf16",
          attn_dtype_text(dst_dtype));
    CHECK(attn_is_float(src_dtype), ATTN_ERR_UNSUPPORTED, "convert: src is %s; it must be f32, f64, f16 or bf16",
          attn_dtype_text(src_dtype));
    CHECK(count >= 0, ATTN_ERR_SHAPE, "convert: count (%" PRId64 ") is negative", count);
    CHECK(dst || count == 0, ATTN_ERR_ARGUMENT, "convert: dst is NULL");
    CHECK(src || count == 0, ATTN_ERR_ARGUMENT, "convert: src is NULL");
    CHECK(is_aligned(dst, dst_dtype) || count == 0, ATTN_ERR_ARGUMENT, "convert: dst is not aligned to its elements of %zu bytes",
          attn_dtype_bytes(dst_dtype));
    CHECK(is_aligned(src, src_dtype) || count == 0, ATTN_ERR_ARGUMENT, "convert: src is not aligned to its elements of %zu bytes",
          attn_dtype_bytes(src_dtype));
    const size_t to = attn_dtype_bytes(dst_dtype), from = attn_dtype_bytes(src_dtype);
    const uintptr_t d = (uintptr_t)dst, s = (uintptr_t)src;
    const int disjoint = d - s >= (uintptr_t)count * from && s - d >= (uintptr_t)count * to;
    CHECK(count == 0 || disjoint || (d == s && to == from), ATTN_ERR_STRIDE,
          "convert: dst and src share elements; dst may be src where the types are the same size");
    for (int64_t i = 0; i < count; i++) attn_element_put(dst, dst_dtype, i, attn_element_get(src, src_dtype, i));
    return attn_succeed(error);
}
