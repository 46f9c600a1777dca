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
    problem_spec spec; /* what is run, for printing */
    attn_linear_problem problem;
    attn_linear_tensors tensors; /* of forward and backward */
    attn_linear_plan *plan, *backward;
    attn_linear_plan_description description;
    void *weights; /* [batch, head, query, key]; NULL: not wanted */
    const attn_archive_tensor *used[LINEARS];
    attn_archive *out;
    void *owned[16];
    int owned_count;
} linear_work;

/* 1 if the words ask for linear attention. */
int linear_is_wanted(const problem_spec *spec);
/* What is left for input_load: the words that both know. */
problem_spec linear_input_spec(const problem_spec *spec);

/* Plans, and adds every output to `out`; state: final_state and final_sum too.  Ends in linear_work_end, also after a failure. */
attn_status linear_work_begin(linear_work *work, const attention_input *input, const input_settings *settings, int state,
                              attn_archive *out, const common_settings *common, attn_error *error);
attn_status linear_work_run(const linear_work *work, const common_settings *common, attn_error *error);
void linear_work_end(linear_work *work);

int linear_work_uses(const linear_work *work, const attn_archive_tensor *tensor);

#endif
