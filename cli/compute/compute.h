/* SPDX-License-Identifier: MIT
 *
 * compute.h - plans and runs a problem for a command: workspace, threads, progress. */
#ifndef ATTN_CLI_COMPUTE_COMPUTE_H
#define ATTN_CLI_COMPUTE_COMPUTE_H

#include "attn/attn.h"
#include "cli/base/options.h"

/* A plan with its workspace. */
typedef struct computation {
    attn_plan *plan;
    void *workspace;
    size_t workspace_bytes;
    attn_plan_description description; /* its texts belong to the plan */
} computation;

/* Release with computation_end, also after a failure. */
attn_status computation_begin(computation *c, const attn_problem *problem, const attn_tensors *tensors,
                              const common_settings *common, attn_error *error);
attn_status computation_run(const computation *c, const attn_tensors *tensors, attn_error *error);
void computation_end(computation *c);

/* Runs a whole problem: at once, or in slices if the work is long and there is a terminal to show progress on.  Index arrays are
 * i64.  label is that of the progress bar. */
attn_status compute_all(const computation *c, const attn_problem *problem, const attn_tensors *tensors,
                        const common_settings *common, const char *label, attn_error *error);

/* The same for a backward pass, by batch entries and heads. */
attn_status compute_backward(const computation *c, const attn_problem *problem, const attn_tensors *tensors,
                             const common_settings *common, attn_error *error);

#endif
