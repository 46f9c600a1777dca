/* SPDX-License-Identifier: MIT
 *
 * linear.h - `attn-mpi run --linear`: linear attention over the ranks, each of which has the rows of its tokens. */
#ifndef ATTN_CLI_MPI_LINEAR_H
#define ATTN_CLI_MPI_LINEAR_H

#include "attn/distributed_linear.h"
#include "cli/compute/linear_input.h"
#include "results.h"

/* Forward, weights and backward, as far as they are wanted. */
typedef struct linear_pass {
    attn_linear_tensors tensors;
    attn_distributed_linear_plan *plan;
} linear_pass;

typedef struct linear_ranks {
    linear_input input;
    attn_distributed_linear_description description; /* of forward */
    linear_pass pass[3];
    int passes;
    void *identity; /* NULL: no weights are wanted */
} linear_ranks;

/* Plans, and adds every output to `results` and to `out` (NULL on other ranks than 0).  Collective, as the next one.  Release with
 * linear_ranks_end, also after a failure. */
attn_status linear_ranks_plan(linear_ranks *l, const attention_input *input, const input_settings *settings, int state,
                              const ranks *r, const attn_split *split, results *all, attn_archive *out, attn_error *error);
attn_status linear_ranks_run(const linear_ranks *l, const ranks *r, attn_error *error);
void linear_ranks_end(linear_ranks *l);

#endif
