/* SPDX-License-Identifier: MIT
 * quantise.c - attn_quantise: rows in a format of keys and values. */
#include "../../common/bound.h"
#include "attn/cache.h"
#include "transfer.h"

static int find_row(const void *context, int64_t n, attn_transfer_token *t)
{
    (void)context;
    *t = (attn_transfer_token){0, n, 0, n, 0, 0, 0, 0};
    return 1;
}

static attn_output output_of(const bound_tensor *t)
{
    return (attn_output){t->data, t->dtype, {t->stride[0], t->stride[1], t->stride[2], t->stride[3]}};
}

attn_status attn_quantise(int64_t rows, int64_t dim, const attn_input *src, const attn_output *values, const attn_output *scales,
                          attn_error *error)
{
    bound_call call = {.module = "quantise"};
    bound_tensor from, to, scale;
    CHECK(rows >= 0 && dim >= 0, ATTN_ERR_SHAPE, "quantise: %s (%" PRId64 ") is negative", rows < 0 ? "rows" : "dim",
          rows < 0 ? rows : dim);
    const attn_dtype type = values && values->dtype ? values->dtype : ATTN_I8;
    const int has_scales = scales && (scales->data || !attn_is_quantised(type) || type == ATTN_I8);
    CHECK(!attn_is_blocks(type) || dim % ATTN_BLOCK == 0, ATTN_ERR_SHAPE,
          "quantise: values is %s and dim is %" PRId64 "; blocks need a multiple of %d", attn_dtype_name(type), dim, ATTN_BLOCK);
    CHECK(!attn_is_by_channel(type) || rows % ATTN_BLOCK == 0, ATTN_ERR_SHAPE,
          "quantise: values is %s and rows is %" PRId64 "; groups need a multiple of %d", attn_dtype_name(type), rows, ATTN_BLOCK);
    CHECK(!attn_is_blocks(type) || !has_scales, ATTN_ERR_ARGUMENT, "quantise: scales is set and values is %s, which has its own",
          attn_dtype_name(type));
    const bound_rule of_src = {"src", {1, 1, rows, dim}, ATTN_F32, BOUND_FLOAT, 0, 1},
                     of_values = {"values", {1, 1, rows, attn_row_elements(type, dim)}, ATTN_I8, BOUND_QUANTISED, 0, 1},
                     of_scales = {"scales", {1, 1, rows, 1}, ATTN_F32, BOUND_F32, 0, 0};
    TRY(bound_input(&call, of_src, src, &from, error));
    TRY(bound_output(&call, of_values, values, &to, error));
    scale = (bound_tensor){.data = NULL};
    if (has_scales || type == ATTN_I8) TRY(bound_output(&call, of_scales, scales, &scale, error));
    TRY(bound_no_overlap(&call, error));
    attn_transfer_walk walk = {.tokens = rows, .find = find_row, .tensors = 1};
    const attn_output read = output_of(&from);
    walk.tensor[0] =
        (attn_transfer_tensor){.heads = 1, .dim = dim, .from = slot_of(&read), .to = output_of(&to), .scale = output_of(&scale)};
    TRY(attn_transfer_plan(&walk, NULL, 1, error));
    for (int64_t row = 0; attn_is_by_channel(type) && dim > 0 && row < rows; row += ATTN_BLOCK) {
        const char *x = (const char *)from.data + row * from.stride[2] * (int64_t)attn_dtype_size(from.dtype);
        uint8_t *key = (uint8_t *)to.data + row * to.stride[2] * (int64_t)attn_dtype_size(type);
        attn_transfer_group(walk.kernel, dim, (attn_transfer_rows){(void *)(uintptr_t)x, from.dtype, from.stride[2]}, key,
                            to.stride[2]);
    }
    if (!attn_is_by_channel(type)) attn_run_transfer(&walk);
    return succeed(error);
}
