/* SPDX-License-Identifier: MIT
 * linear.c - the public functions of attn/linear.h. */
#include <string.h>

#include "../base/error.h"
#include "../plan/linear.h"
#include "../plan/plan.h"
#include "../plan/sequences.h"

int64_t attn_features_count(attn_features kind, int64_t dim_qk, int64_t features)
{
    return attn_linear_dim_features(kind, dim_qk, features);
}

/* No output has elements: an execution is done once its arguments are checked, however large the sizes that are not 0.  (How many
 * packed tokens there are is not known yet, only whether there can be any.) */
static int is_idle(const attn_linear_plan *plan)
{
    const attn_shape *s = &plan->walk.problem.shape;
    const int64_t tokens = s->batch > 0 && s->len_kv > 0;
    return attn_tensors_write_nothing(&attn_linear_family, plan->tensor, plan->tensors, tokens, tokens);
}

size_t attn_linear_plan_workspace_size(const attn_linear_plan *plan)
{
    if (!plan || plan->walk.tasks == 0 || is_idle(plan)) return 0;
    return (size_t)plan->walk.bytes + 63; /* for alignment */
}

/* (Threads are all that it saves.) */
static int lay_out(void *of, int threads, int saves, size_t *bytes)
{
    attn_linear_plan *plan = of;
    (void)saves;
    if (!attn_linear_walk_init(&plan->walk, threads)) return 0;
    *bytes = attn_linear_plan_workspace_size(plan);
    return 1;
}

static attn_status make(attn_linear_plan *plan, const attn_linear_problem *problem, const attn_linear_tensors *tensors,
                        const attn_options *options, attn_error *error)
{
    attn_options o = {0};
    attn_linear_walk *w = &plan->walk;
    memset(plan, 0, sizeof *plan);
    if (options) TRY(attn_struct_read(&o, sizeof o, sizeof o, options, "attn_options", error));
    TRY(attn_options_validate(&o, error));
    CHECK(!o.reproducible, ATTN_ERR_UNSUPPORTED,
          "options.reproducible is set; the bits of linear attention depend on the instruction set");
    TRY(attn_linear_read(&w->problem, problem, tensors, error));
    TRY(attn_linear_resolve(&w->problem, tensors, plan->tensor, &plan->tensors, error));
    const attn_resolved like = {.op = ATTN_LINEAR, .at.q = w->problem.at.q};
    TRY(attn_kernel_choose(&like, &o, 0, &plan->row, plan->why, sizeof plan->why, error));

    plan->allocator = attn_allocator_or_default(&o.allocator);
    w->compute = plan->row->compute;
    attn_kernel_assemble(plan->row, &w->kernel);
    w->dim_f = attn_features_count(w->problem.features, w->problem.shape.dim_qk, w->problem.random_features);
    const int lists = w->problem.has.initial_slots || w->problem.has.final_slots;
    const int64_t entries = attn_state_lists_capacity(lists, w->problem.shape.batch, w->problem.snapshots);
    w->table = entries < 0 ? -1 : 16 * entries;
    w->parallel_for = o.parallel_for;
    w->parallel_context = o.parallel_context;
    size_t bytes;
    int threads;
    TRY(attn_threads_choose(o.threads, &threads, error));
    TRY(attn_plan_fit(lay_out, plan, threads, o.workspace_limit, &bytes, error));
    return attn_plan_check_limit(o.workspace_limit, bytes, error);
}

attn_status attn_linear_plan_create(attn_linear_plan **plan, const attn_linear_problem *problem, const attn_linear_tensors *tensors,
                                    const attn_options *options, attn_error *error)
{
    attn_linear_plan made;
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    *plan = NULL;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(make(&made, problem, tensors, options, error));
    *plan = made.allocator.allocate(made.allocator.context, sizeof made);
    CHECK(*plan, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan", sizeof made);
    **plan = made;
    return attn_succeed(error);
}

attn_status attn_linear_execute(const attn_linear_plan *plan, const attn_linear_tensors *tensors, void *workspace,
                                size_t workspace_size, attn_error *error)
{
    attn_linear_args a;
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    const size_t need = attn_linear_plan_workspace_size(plan);
    TRY(attn_linear_args_read(plan, tensors, (attn_bytes){workspace, workspace_size < need ? 0 : need}, &a, error));
    CHECK(need == 0 || workspace, ATTN_ERR_ARGUMENT, "workspace is NULL; the plan needs %zu bytes", need);
    CHECK(workspace_size >= need, ATTN_ERR_MEMORY, "workspace has %zu bytes; the plan needs %zu", workspace_size, need);
    char *aligned = attn_workspace_align(workspace);
    if (need > 0) TRY(attn_linear_slots_distinct(&plan->walk.problem, &a, aligned, error));
    if (!is_idle(plan)) attn_run_linear(&plan->walk, &a, aligned);
    return attn_succeed(error);
}

void attn_linear_plan_destroy(attn_linear_plan *plan)
{
    if (plan) plan->allocator.release(plan->allocator.context, plan);
}

attn_status attn_linear_compute(const attn_linear_problem *problem, const attn_linear_tensors *tensors, attn_error *error)
{
    attn_linear_plan *plan;
    TRY(attn_linear_plan_create(&plan, problem, tensors, NULL, error));
    const size_t need = attn_linear_plan_workspace_size(plan);
    void *workspace;
    attn_status status = attn_workspace_acquire(&plan->allocator, need, &workspace, error);
    if (status == ATTN_OK) status = attn_linear_execute(plan, tensors, workspace, need, error);
    attn_workspace_release(&plan->allocator, workspace);
    attn_linear_plan_destroy(plan);
    return status;
}

attn_status attn_linear_plan_describe(const attn_linear_plan *plan, attn_linear_plan_description *description, attn_error *error)
{
    attn_linear_plan_description d = {0};
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    TRY(attn_struct_check(description->struct_size, sizeof d, "attn_linear_plan_description", error));
    const attn_linear_walk *w = &plan->walk;
    d.kernel = plan->row->name;
    d.why = plan->why;
    d.isa = plan->row->isa;
    d.compute = w->compute;
    d.form = w->problem.form;
    d.chunk = w->problem.form == ATTN_LINEAR_FORM_RECURRENT ? 1 : w->chunk;
    d.dim_features = w->dim_f;
    d.threads = w->workers;
    d.workspace_bytes = attn_linear_plan_workspace_size(plan);
    d.flops = (double)(w->tasks / w->parts) * attn_linear_walk_flops(w);
    attn_struct_write(description, &d, sizeof d);
    return attn_succeed(error);
}
