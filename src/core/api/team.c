/* SPDX-License-Identifier: MIT
 *
 * team.c - attn_execute_worker.  Worker 0 executes; wherever that would use threads, it publishes the work in team->state, and the
 * others, which wait in the barrier, do their share:
 *
 *      worker 0     job = work;  barrier;  its share;  barrier;  ...      job = NULL, status;  barrier;               barrier
 *      worker i                  barrier;  its share;  barrier;  ...                           barrier;  read status;  barrier
 */
#include "attn/team.h"

#include "../base/error.h"
#include "../base/struct.h"
#include "../threads/pool.h"
#include "../threads/threads.h"

/* What worker 0 shares with the others; lies on its stack. */
typedef struct job {
    void (*body)(void *context, int64_t i); /* NULL: the execution is over */
    void *context;
    int64_t count;
    attn_error error;
} job;

static void meet(const attn_team *team)
{
    if (team->workers > 1) team->barrier(team->context);
}

static void run_share(const job *j, const attn_team *team, int worker)
{
    for (int64_t i = worker; i < j->count; i += team->workers) j->body(j->context, i);
}

/* The attn_parallel_for of worker 0. */
static void run_together(void *context, int64_t count, void (*body)(void *body_context, int64_t i), void *body_context)
{
    attn_team *team = context;
    job *j = team->state[0];
    j->body = body;
    j->context = body_context;
    j->count = count;
    meet(team);
    attn_threads_lend(NULL, NULL); /* the others are at work: what a callback executes must not meet them */
    run_share(j, team, 0);
    attn_threads_lend(run_together, team);
    meet(team);
}

static attn_status follow(attn_team *team, int worker, attn_error *error)
{
    for (;;) {
        meet(team);
        const job *j = team->state[0];
        if (!j->body) {
            const attn_status status = j->error.status;
            if (error) *error = j->error;
            meet(team);
            return status;
        }
        run_share(j, team, worker);
        meet(team);
    }
}

static attn_status lead(const attn_plan *plan, const attn_tensors *tensors, void *workspace, size_t workspace_size, attn_team *team,
                        attn_error *error)
{
    job j = {NULL, NULL, 0, {ATTN_OK, -1, -1, ""}};
    team->state[0] = &j;
    attn_threads_lend(run_together, team);
    const attn_status status = attn_execute(plan, tensors, workspace, workspace_size, &j.error);
    attn_threads_lend(NULL, NULL);
    j.body = NULL;
    meet(team);
    if (error) *error = j.error;
    meet(team);
    return status; /* the state stays: worker 0 of the next execution, perhaps another thread, may have set it */
}

attn_status attn_execute_worker(const attn_plan *plan, int worker, const attn_tensors *tensors, void *workspace,
                                size_t workspace_size, attn_team *team, attn_error *error)
{
    CHECK(team, ATTN_ERR_ARGUMENT, "team is NULL");
    TRY(attn_fields_check(team, sizeof *team, sizeof *team, "attn_team", error));
    CHECK(team->workers >= 1 && team->workers <= ATTN_POOL_MAX, ATTN_ERR_ARGUMENT,
          "team.workers is %d; it must be between 1 and %d", team->workers, ATTN_POOL_MAX);
    CHECK(team->barrier || team->workers == 1, ATTN_ERR_ARGUMENT, "team.barrier is NULL; %d workers need one", team->workers);
    CHECK(worker >= 0 && worker < team->workers, ATTN_ERR_ARGUMENT, "worker is %d; it must be between 0 and team.workers - 1 (%d)",
          worker, team->workers - 1);
    if (worker > 0) return follow(team, worker, error);
    return lead(plan, tensors, workspace, workspace_size, team, error);
}
