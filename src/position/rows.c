/* SPDX-License-Identifier: MIT
 * rows.c - what layouts of rows must keep. */
#include "rows.h"

#include <inttypes.h>

#include "../common/fail.h"

attn_status attn_rows_resolve(attn_layout *layout, const char *name, const int64_t shape[4], attn_error *error)
{
    int64_t *stride = layout->stride, dense = 1;
    int implied = stride[0] == 0 && stride[1] == 0 && stride[2] == 0 && stride[3] == 0;
    if (layout->dtype == ATTN_DTYPE_DEFAULT) layout->dtype = ATTN_F32;
    CHECK(attn_rows_is_float(layout->dtype), ATTN_ERR_UNSUPPORTED, "%s is %s; it must be f32, f64, f16 or bf16", name,
          attn_dtype_name(layout->dtype));
    for (int axis = 3; axis >= 0; axis--) {
        if (implied) stride[axis] = dense;
        CHECK(shape[axis] == 0 || dense <= INT64_MAX / 8 / shape[axis], ATTN_ERR_SHAPE, "%s has more bytes than 64 bits count",
              name);
        dense *= shape[axis];
    }
    CHECK(stride[3] == 1 || shape[3] <= 1, ATTN_ERR_STRIDE, "%s.stride[3] is %" PRId64 "; the last axis must be contiguous (1)",
          name, stride[3]);
    return ATTN_OK;
}
