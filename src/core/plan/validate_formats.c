/* SPDX-License-Identifier: MIT
 * validate_formats.c - the rules of keys and values of 8 and 4 bits. */
#include <inttypes.h>

#include "../base/error.h"
#include "../base/names.h"
#include "../prepare/prepare.h"
#include "plan.h"

/* Keys by channel: groups of tokens lie on a grid, which pages share, and the last ones are in k_tail. */
static attn_status check_by_channel(const attn_resolved *p, const attn_dtype types[2], attn_error *error)
{
    const int by_channel = attn_is_by_channel(types[0]);
    const char *name = attn_dtype_text(types[0]);
    CHECK_TENSOR(!attn_is_by_channel(types[1]), ATTN_SLOT_v, ATTN_ERR_UNSUPPORTED,
                 "v.dtype is %s; only keys are quantised by channel", attn_dtype_text(types[1]));
    CHECK_TENSORS(by_channel || !p->has.k_tail, ATTN_SLOT_k_tail, ATTN_SLOT_k, ATTN_ERR_ARGUMENT,
                  "k_tail is set and k.dtype is %s; only keys of q4_1c have a tail", name);
    if (!by_channel) return ATTN_OK;
    CHECK_TENSORS(p->has.k_tail, ATTN_SLOT_k_tail, ATTN_SLOT_k, ATTN_ERR_ARGUMENT,
                  "k_tail is missing; k.dtype is %s, and keys of a group that is not full are there", name);
    CHECK_TENSORS(!p->has.cu_seqlens_kv, ATTN_SLOT_k, ATTN_SLOT_cu_seqlens_kv, ATTN_ERR_UNSUPPORTED,
                  "k.dtype is %s and cu_seqlens_kv is set; a sequence begins with a group of %d keys", name, ATTN_BLOCK);
    CHECK_TENSOR(!attn_prepares_keys(p), ATTN_SLOT_k, ATTN_ERR_UNSUPPORTED,
                 "k.dtype is %s; keys by channel have neither cosines nor distances", name);
    CHECK_TENSOR(!attn_is_paged(p) || p->paging.page_size % ATTN_BLOCK == 0, ATTN_SLOT_k, ATTN_ERR_SHAPE,
                 "k.dtype is %s and paging.page_size is %" PRId64 "; it must be a multiple of %d", name, p->paging.page_size,
                 ATTN_BLOCK);
    return ATTN_OK;
}

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
    return check_by_channel(p, types, error);
}

attn_status attn_latents_validate(const attn_resolved *p, const void *k, const void *v, attn_error *error)
{
    const attn_layout *a = &p->at.k, *b = &p->at.v;
    const int alike = a->dtype == b->dtype && a->stride[0] == b->stride[0] && a->stride[2] == b->stride[2] &&
                      (p->shape.heads_kv == 1 || a->stride[1] == b->stride[1]);
    CHECK_TENSORS(!p->has.k_scale || p->has.v_scale || k != v || !attn_is_address(k) || !alike, ATTN_SLOT_v_scale,
                  ATTN_SLOT_k_scale, ATTN_ERR_ARGUMENT, "v_scale is missing; v is k, and k_scale is set: give v_scale = k_scale");
    return ATTN_OK;
}
