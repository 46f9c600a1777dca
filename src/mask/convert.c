/* SPDX-License-Identifier: MIT
 * convert.c - conversions between the forms of a mask: patterns, keep, drop, additive. */
#include "../common/bound.h"
#include "set.h"

static bound_rule row(const char *name, int64_t count, attn_dtype natural, int types)
{
    return (bound_rule){.name = name, .shape = {1, 1, 1, count}, .natural = natural, .types = types};
}

static unsigned char *byte(const bound_tensor *t, int64_t n) { return (unsigned char *)t->data + bound_at(t, 0, 0, 0, n); }

attn_status attn_mask_keep_from_drop(int64_t count, const attn_input *drop, const attn_output *keep, attn_error *error)
{
    bound_call call = {.module = "mask"};
    bound_tensor from, to;
    CHECK(count >= 0, ATTN_ERR_SHAPE, "mask: count (%" PRId64 ") is negative", count);
    TRY(bound_input(&call, row("drop", count, ATTN_BOOL, BOUND_MASK), drop, &from, error));
    TRY(bound_output(&call, row("keep", count, ATTN_BOOL, BOUND_MASK), keep, &to, error));
    if (from.data != to.data || (count > 1 && from.stride[3] != to.stride[3])) TRY(bound_no_overlap(&call, error));
    for (int64_t n = 0; n < count; n++) *byte(&to, n) = *byte(&from, n) == 0;
    return succeed(error);
}

attn_status attn_mask_bias_from_keep(int64_t count, double fill, const attn_input *keep, const attn_output *bias, attn_error *error)
{
    bound_call call = {.module = "mask"};
    bound_tensor from, to;
    CHECK(count >= 0, ATTN_ERR_SHAPE, "mask: count (%" PRId64 ") is negative", count);
    TRY(bound_input(&call, row("keep", count, ATTN_BOOL, BOUND_MASK), keep, &from, error));
    TRY(bound_output(&call, row("bias", count, ATTN_F32, BOUND_FLOAT), bias, &to, error));
    TRY(bound_no_overlap(&call, error));
    for (int64_t n = 0; n < count; n++) bound_put(&to, bound_at(&to, 0, 0, 0, n), *byte(&from, n) ? 0 : fill);
    return succeed(error);
}

attn_status attn_pattern_set_fill(const attn_pattern_set *set, const attn_output *keep, attn_error *error)
{
    bound_call call = {.module = "mask"};
    bound_tensor to;
    CHECK(set, ATTN_ERR_ARGUMENT, "set is NULL");
    const bound_rule must = {.name = "keep", .shape = {1, 1, set->len_q, set->len_kv}, .natural = ATTN_BOOL, .types = BOUND_MASK};
    TRY(bound_output(&call, must, keep, &to, error));
    for (int64_t i = 0; i < set->len_q && set->len_kv > 0; i++)
        for (int64_t j = 0; j < set->len_kv; j++)
            ((unsigned char *)to.data)[bound_at(&to, 0, 0, i, j)] = (unsigned char)attn_pattern_set_sees(set, i, j);
    return succeed(error);
}
