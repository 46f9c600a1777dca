/* SPDX-License-Identifier: MIT
 * transfer.c - the kernel and threads of a call that moves tokens. */
#include "transfer.h"

#include "../base/error.h"
#include "../plan/plan.h"

attn_status attn_transfer_plan(attn_transfer_walk *walk, const attn_options *options, int serial, attn_error *error)
{
    attn_options copy = {.struct_size = sizeof copy};
    const attn_kernel_row *row;
    if (options) {
        TRY(attn_struct_read(&copy, sizeof copy, sizeof copy, options, "attn_options", error));
        TRY(attn_options_validate(&copy, error));
    }
    TRY(attn_kernel_best(ATTN_PRODUCT, ATTN_F64, &copy, &row, error));
    walk->kernel = attn_kernel_transfer(row);
    walk->parallel_for = copy.parallel_for;
    walk->parallel_context = copy.parallel_context;
    walk->threads = 1;
    return serial || attn_transfer_size(walk) < ATTN_TRANSFER_SERIAL ? ATTN_OK
                                                                     : attn_threads_choose(copy.threads, &walk->threads, error);
}
