/* SPDX-License-Identifier: MIT
 *
 * linear.h - `attn run --linear`: linear attention over the tensors of a file. */
#ifndef ATTN_CLI_RUN_LINEAR_H
#define ATTN_CLI_RUN_LINEAR_H

#include "cli/compute/linear_input.h"

typedef struct linear_work {
    linear_input input;
    attn_linear_plan *plan, *backward;
    attn_linear_plan_description description;
    void *weights; /* [batch, head, query, key]; NULL: not requested */
    attn_archive *out;
} linear_work;

/* Plans, and adds every output to `out`; state: final_state and final_sum too.  Release with linear_work_end, also after a
 * failure. */
attn_status linear_work_begin(linear_work *work, const attention_input *input, const input_settings *settings, int state,
                              attn_archive *out, const common_settings *common, attn_error *error);
attn_status linear_work_run(const linear_work *work, const common_settings *common, attn_error *error);
void linear_work_end(linear_work *work);

#endif
