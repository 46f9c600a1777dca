/* SPDX-License-Identifier: MIT
 *
 * runs.h - an operation as one run over its cells, or as two.  Double backward: forward mode, whose tangents of o and lse are sums
 * over all keys, and then the derivatives, of which each cell reads these tangents, as those of backward read o and lse.  Forward
 * with weights or column sums: all else, and then these, of which each cell reads lse (weights.h). */
#ifndef ATTN_DISTRIBUTED_RUNS_H
#define ATTN_DISTRIBUTED_RUNS_H

#include "run.h"

typedef enum attn_runs_of { ATTN_RUN_FIRST, ATTN_RUN_SECOND, ATTN_RUNS } attn_runs_of;

enum { ATTN_RUNS_KEEP = 2 };

typedef struct attn_runs {
    attn_distributed_plan of[ATTN_RUNS];
    /* Tensors that the first run writes and the second reads, unless they are the caller's: their slots, and where they begin in
     * the workspace; numbers of the compute type. */
    size_t slot[ATTN_RUNS_KEEP], at[ATTN_RUNS_KEEP];
    int count;
    size_t bytes; /* of all of these */
} attn_runs;

/* 1 if the problem takes two runs: double backward not if the caller has the tangents.  bounds are filled in. */
int attn_runs_are_two(const attn_cells *cells);
/* From cells of such a problem, without plans, to those of one of the runs. */
void attn_runs_take(attn_cells *cells, attn_runs_of run);

/* As attn_run_plan and attn_run, for one run or for two.  What planning has made is released by attn_runs_free, also if it failed.
 */
attn_status attn_runs_plan(attn_distributed_plan *plan, attn_error *error);
attn_status attn_runs_execute(const attn_distributed_plan *plan, const attn_tensors *mine, void *workspace, attn_error *error);
void attn_runs_free(attn_distributed_plan *plan);

#endif
