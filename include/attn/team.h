/* SPDX-License-Identifier: MIT
 *
 * team.h - executing a plan on threads that the caller already has: all of them enter the call, as in engines whose threads run a
 * graph together (ggml and others).  No thread is created or woken.
 *
 *      static attn_team team = {.struct_size = sizeof team, .workers = 4, .barrier = my_barrier};
 *      attn_execute_worker(plan, i, &tensors, workspace, size, &team, &error);        on each thread i = 0, 1, 2, 3
 */
#ifndef ATTN_TEAM_H
#define ATTN_TEAM_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One struct that all threads of a team share, as long as it is in a call. */
typedef struct attn_team {
    size_t struct_size; /* sizeof(attn_team) */
    int workers;        /* threads that enter, 1 to 1024; those beyond the plan's options.threads wait */
    /* Returns when all workers have called it as many times; what a worker wrote before is then visible to all. */
    void (*barrier)(void *context);
    void *context;
    void *state[8]; /* NULL before the first call; the library's own between calls */
} attn_team;

/*
 * attn_execute, entered by all workers of a team: each of them calls it with the same plan, team, workspace and size, its own
 * number and its own error.  Worker 0 reads the tensors (those of the others may be NULL) and checks them; the others wait in the
 * barrier for their share of the work.  All return the same status and message.  The barrier is called twice for each stage of the
 * work, and twice more.
 *
 * Results have the bits of attn_execute.  options.parallel_for of the plan is not used.  Any worker may be worker 0 of the next
 * execution.  What a callback (visit_rows, modify_scores) executes uses the library's own threads, not the team.
 *
 * Returns what attn_execute returns, or, at once and without a barrier, ATTN_ERR_ARGUMENT: team is NULL, its struct_size or workers
 * are invalid, barrier is NULL with more than one worker, or worker is not between 0 and workers - 1; such a call must not be made
 * by some workers only.
 */
ATTN_API attn_status attn_execute_worker(const attn_plan *plan, int worker, const attn_tensors *tensors, void *workspace,
                                         size_t workspace_size, attn_team *team, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
