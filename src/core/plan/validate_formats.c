/* SPDX-License-Identifier: MIT
 * validate_formats.c - the rules of keys and values of 8 and 4 bits. */
#include <inttypes.h>

#include "../base/error.h"
#include "../base/names.h"
#include "plan.h"

attn_status attn_formats_validate(const attn_resolved *p, const attn_dtype types[2], attn_error *error)
{
    static const char *const names[] = {"k", "v"};
    const unsigned char has[] = {p->has.k_scale, p->has.v_scale};
    const int slots[] = {ATTN_SLOT_k_scale, ATTN_SLOT_v_scale}, scaled[] = {ATTN_SLOT_k, ATTN_SLOT_v};
    const int64_t dims[] = {attn_problem_dim_k(p), p->shape.dim_v};
    for (int n = 0; n < 2; n++) {
        const attn_dtype type = types[n];
        CHECK_TENSOR(!attn_is_quantised(type) || p->op == ATTN_FORWARD, scaled[n], ATTN_ERR_UNSUPPORTED,
                     "%s.dtype is %s and op is not ATTN_FORWARD; quantised keys and values have no gradients", names[n],
                     attn_dtype_text(type));
        CHECK_TENSORS(type != ATTN_I8 || has[n], slots[n], scaled[n], ATTN_ERR_ARGUMENT, "%s_scale is missing; %s.dtype is i8",
                      names[n], names[n]);
        CHECK_TENSORS(type == ATTN_I8 || attn_is_f8(type) || !has[n], slots[n], scaled[n], ATTN_ERR_ARGUMENT,
                      "%s_scale is set and %s.dtype is neither i8 nor f8", names[n], names[n]);
        CHECK_TENSOR(!attn_is_blocks(type) || dims[n] % ATTN_BLOCK == 0, scaled[n], ATTN_ERR_SHAPE,
                     "%s.dtype is %s and its rows have %" PRId64 " channels; blocks need a multiple of %d", names[n],
                     attn_dtype_text(type), dims[n], ATTN_BLOCK);
    }
    return ATTN_OK;
}
