/* SPDX-License-Identifier: MIT
 * execute.c - attn_execute and attn_forward. */
#include "../base/error.h"
#include "../plan/plan.h"
#include "../sched/relative.h"
#include "../sched/short.h"
#include "../sched/tables.h"

attn_status attn_execute(const attn_plan *plan, const attn_args *args, void *workspace, size_t workspace_size, attn_error *error)
{
    attn_args a;
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(args, ATTN_ERR_ARGUMENT, "args is NULL");
    TRY(attn_struct_read(&a, sizeof a, args, args->struct_size, "attn_args", error));
    TRY(attn_args_validate(&plan->prepare.problem, &a, error));
    size_t need = attn_plan_workspace_size(plan);
    CHECK(need == 0 || workspace, ATTN_ERR_ARGUMENT, "workspace is NULL; the plan needs %zu bytes", need);
    CHECK(workspace_size >= need, ATTN_ERR_MEMORY, "workspace has %zu bytes; the plan needs %zu", workspace_size, need);
    void *aligned = (void *)(((uintptr_t)workspace + 63) & ~(uintptr_t)63);
    attn_args prepared;
    char *tables = (char *)aligned + plan->prepare.bytes;
    char *relative = tables + plan->walk.tables.bytes;
    void *rest = relative + plan->walk.relative.bytes;
    attn_prepare_begin(&plan->prepare, &plan->walk, &a, aligned, &prepared);
    attn_tables_begin(&plan->walk, &a, tables, &prepared);
    attn_relative_begin(&plan->walk, &plan->prepare.problem, &a, relative, &prepared);
    switch (plan->walk.problem.op) {
    case ATTN_FORWARD:
        (plan->walk.decode        ? attn_sched_decode
         : plan->walk.short_heads ? attn_sched_short_forward
                                  : attn_sched_forward)(&plan->walk, &prepared, rest);
        break;
    case ATTN_BACKWARD:
        (plan->walk.short_heads ? attn_sched_short_backward : attn_sched_backward)(&plan->walk, &prepared, rest);
        break;
    case ATTN_JVP:
        attn_sched_jvp(&plan->walk, &prepared, rest);
        break;
    case ATTN_DOUBLE_BACKWARD:
        attn_sched_second(&plan->walk, &prepared, rest);
        break;
    case ATTN_LINEAR: /* no problem passes the rules with it */
        break;
    }
    attn_relative_finish(&plan->walk, &plan->prepare.problem, &a, &prepared);
    attn_prepare_finish(&plan->prepare, &plan->walk, &a, aligned);
    return attn_succeed(error);
}

attn_status attn_forward(const attn_problem *problem, const attn_args *args, attn_error *error)
{
    attn_plan *plan;
    TRY(attn_plan_create(&plan, problem, NULL, error));
    const size_t need = attn_plan_workspace_size(plan);
    void *workspace;
    attn_status status = attn_workspace_take(&plan->allocator, need, &workspace, error);
    if (status == ATTN_OK) status = attn_execute(plan, args, workspace, need, error);
    attn_workspace_give(&plan->allocator, workspace);
    attn_plan_destroy(plan);
    return status;
}
