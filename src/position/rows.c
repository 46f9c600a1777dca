/* SPDX-License-Identifier: MIT
 * rows.c - what slots of rows must keep. */
#include "rows.h"

#include "../common/slots.h"

attn_status attn_rows_resolve(attn_input *slot, const char *name, const int64_t shape[4], attn_dtype natural, attn_error *error)
{
    TRY(slot_resolve(slot, name, shape, natural, error));
    CHECK(attn_rows_is_float(slot->dtype), ATTN_ERR_UNSUPPORTED, "%s is %s; it must be f32, f64, f16 or bf16", name,
          attn_dtype_name(slot->dtype));
    CHECK(slot->stride[3] == 1 || shape[3] <= 1, ATTN_ERR_STRIDE,
          "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)", name, slot->stride[3]);
    return ATTN_OK;
}
