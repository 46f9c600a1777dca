/* SPDX-License-Identifier: MIT
 *
 * runs.h - an operation as one run over its cells, or, double backward, as two: forward mode, whose tangents of o and lse are sums
 * over all keys, and then the derivatives, of which each cell reads these tangents, as those of backward read o and lse. */
#ifndef ATTN_DISTRIBUTED_RUNS_H
#define ATTN_DISTRIBUTED_RUNS_H

#include "run.h"

/* The runs of double backward. */
typedef enum attn_runs_of { ATTN_RUN_TANGENTS, ATTN_RUN_DERIVATIVES, ATTN_RUNS } attn_runs_of;

typedef struct attn_runs {
    attn_distributed_plan of[ATTN_RUNS];
    size_t tan_o, tan_lse; /* where they begin in the workspace; numbers of the compute type */
    size_t bytes;          /* of both */
} attn_runs;

/* 1 if the problem takes two runs: not if the caller has the tangents.  bounds are filled in. */
int attn_runs_are_two(const attn_cells *cells);
/* From cells of such a problem, without plans, to those of one of the runs. */
void attn_runs_take(attn_cells *cells, attn_runs_of run);

/* As attn_run_plan and attn_run, for one run or for two.  What planning has made is released by attn_runs_free, also if it failed.
 */
attn_status attn_runs_plan(attn_distributed_plan *plan, attn_error *error);
attn_status attn_runs_execute(const attn_distributed_plan *plan, const attn_tensors *mine, void *workspace, attn_error *error);
void attn_runs_free(attn_distributed_plan *plan);

#endif
