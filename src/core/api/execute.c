/* SPDX-License-Identifier: MIT
 * execute.c - attn_execute and attn_compute. */
#include "execute.h"

#include <stdint.h>

#include "../base/error.h"
#include "../plan/plan.h"
#include "../plan/schedule.h"
#include "../visible/visible.h"

/* 1 if some sequence belongs to this part: parts of a ragged batch may have none, and are skipped quickly. */
static int has_work(const attn_resolved *p, const attn_args *args)
{
    if (args->schedule) return args->schedule->count > 0;
    if (p->max_q == 0 || (!p->skips_others && !attn_is_packed(p))) return 1; /* the last part also handles padding */
    for (int64_t b = 0; b < p->shape.batch; b++)
        if (attn_has_entry(p, args, b)) return 1;
    return 0;
}

int attn_execution_can_rotate(const attn_plan *plan, const attn_tensors *tensors)
{
    attn_args args;
    if (attn_args_read(plan, tensors, &args, NULL) != ATTN_OK) return 0;
    for (int n = 0; n < plan->parts; n++) {
        const attn_plan_part *part = &plan->part[n];
        if (!has_work(&part->walk->problem, &args)) continue;
        if (!part->type->can_rotate || !part->type->can_rotate(part->walk)) return 0;
    }
    return 1;
}

attn_status attn_execute(const attn_plan *plan, const attn_tensors *tensors, void *workspace, size_t workspace_size,
                         attn_error *error)
{
    return attn_execute_rotated(plan, tensors, NULL, workspace, workspace_size, error);
}

attn_status attn_execute_rotated(const attn_plan *plan, const attn_tensors *tensors, const attn_rotation *rotation, void *workspace,
                                 size_t workspace_size, attn_error *error)
{
    attn_args args;
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(attn_args_read(plan, tensors, &args, error));
    args.rotation = rotation;
    const attn_schedule *schedule = args.call.schedule;
    if (schedule) TRY(attn_schedule_check(schedule, plan, &args, error));
    size_t need = attn_plan_workspace_size(plan);
    if (schedule && need > 0) need = attn_schedule_need(schedule, plan);
    TRY(attn_args_check_overlap(plan, &args, (attn_bytes){workspace, workspace_size < need ? 0 : need}, error));
    const uintptr_t from = (uintptr_t)workspace, at = (uintptr_t)schedule;
    CHECK(!schedule || need == 0 || from >= at + schedule->bytes || from + need <= at, ATTN_ERR_ARGUMENT,
          "workspace overlaps the memory of call.schedule");
    const char *whose = schedule ? "schedule" : "plan";
    CHECK(need == 0 || workspace, ATTN_ERR_ARGUMENT, "workspace is NULL; the %s needs %zu bytes", whose, need);
    CHECK(workspace_size >= need, ATTN_ERR_MEMORY, "workspace has %zu bytes; the %s needs %zu", workspace_size, whose, need);
    if (args.idle) return attn_succeed(error); /* heads and tokens without channels would be walked one by one, even 2^48 */
    char *aligned = attn_workspace_align(workspace);
    /* The last part first: if there are several, it writes the padding of all, and the others overwrite theirs. */
    for (int n = plan->parts - 1; n >= 0; n--) {
        const attn_plan_part *part = &plan->part[n];
        args.schedule = schedule ? &schedule->part[n] : NULL;
        if (has_work(&part->walk->problem, &args) || plan->parts == 1) part->type->run(part->walk, &args, aligned);
    }
    return attn_succeed(error);
}

attn_status attn_compute(const attn_problem *problem, const attn_tensors *tensors, attn_error *error)
{
    attn_plan *plan;
    TRY(attn_plan_create(&plan, problem, tensors, NULL, error));
    const size_t need = attn_plan_workspace_size(plan);
    void *workspace;
    attn_status status = attn_workspace_acquire(&plan->allocator, need, &workspace, error);
    if (status == ATTN_OK) status = attn_execute(plan, tensors, workspace, need, error);
    attn_workspace_release(&plan->allocator, workspace);
    attn_plan_destroy(plan);
    return status;
}
