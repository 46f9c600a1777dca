/* SPDX-License-Identifier: MIT
 * convert.c - between the forms of a mask: keep, drop, additive. */
#include "../common/bound.h"
#include "attn/mask.h"

void attn_mask_keep_from_drop(unsigned char *keep, const unsigned char *drop, int64_t count)
{
    for (int64_t n = 0; n < count; n++) keep[n] = drop[n] == 0;
}

attn_status attn_mask_bias_from_keep(const unsigned char *keep, int64_t count, double fill, const attn_output *bias,
                                     attn_error *error)
{
    bound_call call = {.module = "mask"};
    bound_tensor to;
    CHECK(count >= 0, ATTN_ERR_SHAPE, "mask: count (%" PRId64 ") is negative", count);
    CHECK(keep || count == 0, ATTN_ERR_ARGUMENT, "mask: keep is NULL");
    const bound_rule rule = {.name = "bias", .shape = {1, 1, 1, count}, .natural = ATTN_F32, .types = BOUND_FLOAT};
    TRY(bound_output(&call, rule, bias, &to, error));
    call.places.size = 1;
    places_add_bytes(&call.places, "keep", keep, count, 0);
    TRY(bound_apart(&call, error));
    for (int64_t n = 0; n < count; n++) bound_put(&to, bound_at(&to, 0, 0, 0, n), keep[n] ? 0 : fill);
    return succeed(error);
}
