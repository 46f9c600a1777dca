/* SPDX-License-Identifier: MIT
 * alibi.c - ALiBi slopes. */
#include <math.h>

#include "../common/bound.h"
#include "attn/position.h"

attn_status attn_alibi_slopes(int64_t heads, const attn_output *slopes, attn_error *error)
{
    bound_call call = {.module = "alibi"};
    bound_tensor to;
    CHECK(heads >= 0, ATTN_ERR_SHAPE, "alibi: heads (%" PRId64 ") is negative", heads);
    const bound_rule rule = {.name = "slopes", .shape = {1, heads, 1, 1}, .natural = ATTN_F32, .types = BOUND_REAL};
    TRY(bound_output(&call, rule, slopes, &to, error));
    int64_t power = 1;
    while (power <= heads / 2) power *= 2;
    for (int64_t h = 0; h < heads; h++) {
        double exponent =
            h < power ? -8.0 * (double)(h + 1) / (double)power
                      : -8.0 * (double)(2 * (h - power) + 1) / (2.0 * (double)power); /* slopes 0, 2, ... of twice as many heads */
        bound_put(&to, bound_at(&to, 0, h, 0, 0), exp2(exponent));
    }
    return succeed(error);
}
