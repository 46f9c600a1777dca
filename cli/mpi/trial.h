/* SPDX-License-Identifier: MIT
 *
 * trial.h - a problem string as a problem over ranks, with drawn numbers, to be run again and again. */
#ifndef ATTN_CLI_MPI_TRIAL_H
#define ATTN_CLI_MPI_TRIAL_H

#include "cli/input/split.h"
#include "cli/measure/draw.h"
#include "ranks.h"
#include "timed.h"

typedef struct trial {
    attn_distributed_description about; /* of the operation */
    double flops;                       /* of all ranks */
    /* private */
    const ranks *ranks;
    attention_input input; /* the sizes, the tensors and the rows of this rank */
    split_rank mine;
    attn_split_machine machine;
    timed messages;
    attn_tensors tensors;
    attn_distributed_plan *plan;
    void *memory[TENSORS], *workspace;
    int count;
} trial;

/* ATTN_ERR_UNSUPPORTED for problems whose sequences have lengths of their own, beside what attn_distributed_plan_create returns.
 * Local: for checks of a problem string before anything runs. */
attn_status trial_check(const problem_spec *spec, attn_error *error);

/* Collective, as the others.  Operations after forward find the o and lse that forward computes.  Release with trial_end, also
 * after a failure. */
attn_status trial_begin(trial *t, const problem_spec *spec, const ranks *r, const split_settings *split,
                        const common_settings *common, attn_error *error);

/* Runs it once: seconds of the slowest rank, and the mean share of them that ranks spent with messages. */
attn_status trial_run(trial *t, double *seconds, double *share, attn_error *error);
void trial_end(trial *t);

#endif
