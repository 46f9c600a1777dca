/* SPDX-License-Identifier: MIT
 * alibi.c - the slopes of ALiBi. */
#include <inttypes.h>
#include <math.h>

#include "../common/fail.h"
#include "../common/sizes.h"
#include "attn/position.h"
#include "rows.h"

attn_status attn_alibi_slopes(int64_t heads, attn_dtype dtype, void *slopes, attn_error *error)
{
    CHECK(heads >= 0, ATTN_ERR_SHAPE, "alibi: heads (%" PRId64 ") is negative", heads);
    CHECK(dtype == ATTN_F32 || dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "alibi: slopes are %s; they must be f32 or f64",
          attn_dtype_name(dtype));
    CHECK(sizes_fit((int64_t)attn_dtype_size(dtype), &heads, 1), ATTN_ERR_SHAPE,
          "alibi: heads (%" PRId64 ") have more bytes than 64 bits count", heads);
    CHECK(slopes || heads == 0, ATTN_ERR_ARGUMENT, "alibi: slopes is NULL");
    int64_t power = 1;
    while (power <= heads / 2) power *= 2;
    for (int64_t h = 0; h < heads; h++) {
        double exponent = h < power ? -8.0 * (double)(h + 1) / (double)power
                                    : -8.0 * (double)(2 * (h - power) + 1) / (2.0 * (double)power); /* numbers 0, 2, ... of twice */
        attn_rows_put(slopes, dtype, h, exp2(exponent));
    }
    return succeed(error);
}
