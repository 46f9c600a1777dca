/* SPDX-License-Identifier: MIT
 *
 * linear.h - `attn run --linear`: linear attention over the tensors of a file. */
#ifndef ATTN_CLI_RUN_LINEAR_H
#define ATTN_CLI_RUN_LINEAR_H

#include "cli/base/options.h"
#include "cli/input/input.h"
#include "testing/problem/linear_tensors.h"

typedef struct linear_work {
    const attention_input *input;
    problem_spec spec; /* the problem as it is printed */
    attn_linear_problem problem;
    attn_linear_tensors tensors; /* of forward and backward */
    attn_linear_plan *plan, *backward;
    attn_linear_plan_description description;
    void *weights; /* [batch, head, query, key]; NULL: not requested */
    const attn_archive_tensor *used[LINEARS];
    attn_archive *out;
    void *owned[16];
    int owned_count;
} linear_work;

/* 1 if the options select linear attention: --linear, --phi or --rule, even --rule=add. */
int linear_is_requested(const problem_spec *spec);
/* The options that softmax and linear attention share, for input_load. */
problem_spec linear_input_spec(const problem_spec *spec);

/* Plans, and adds every output to `out`; state: final_state and final_sum too.  Release with linear_work_end, also after a
 * failure. */
attn_status linear_work_begin(linear_work *work, const attention_input *input, const input_settings *settings, int state,
                              attn_archive *out, const common_settings *common, attn_error *error);
attn_status linear_work_run(const linear_work *work, const common_settings *common, attn_error *error);
void linear_work_end(linear_work *work);

#endif
