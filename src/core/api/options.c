/* SPDX-License-Identifier: MIT
 * options.c - attn_options_resolve. */
#include "../base/error.h"
#include "../plan/plan.h"

attn_status attn_options_resolve(const attn_options *options, attn_options *resolved, attn_error *error)
{
    attn_options o = {0};
    const attn_kernel_row *row;
    CHECK(resolved, ATTN_ERR_ARGUMENT, "resolved is NULL");
    TRY(attn_struct_check(resolved->struct_size, sizeof o, "attn_options", error));
    if (options) TRY(attn_struct_read(&o, sizeof o, sizeof o, options, "attn_options", error));
    TRY(attn_options_validate(&o, error));
    /* Every instruction set has every operation for both types, so any one decides. */
    TRY(attn_kernel_best(ATTN_PRODUCT, ATTN_F32, &o, &row, error));
    o.isa = row->isa;
    TRY(attn_threads_choose(o.threads, &o.threads, error));
    attn_struct_write(resolved, &o, sizeof o);
    return attn_succeed(error);
}
