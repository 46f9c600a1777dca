/* SPDX-License-Identifier: MIT
 * plan.c - attn_plan_create, attn_plan_workspace_size, attn_plan_describe, attn_plan_destroy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../plan/plan.h"
#include "../sched/relative.h"
#include "../sched/threads.h"

/* Everything of a plan but its memory. */
static attn_status make(attn_plan *plan, const attn_problem *problem, const attn_options *options, attn_error *error)
{
    attn_options o = {0};
    attn_walk *walk = &plan->walk;
    memset(plan, 0, sizeof *plan);
    if (options) TRY(attn_struct_read(&o, sizeof o, options, options->struct_size, "attn_options", error));
    TRY(attn_options_validate(&o, error));
    attn_problem *ours = &plan->prepare.problem;
    TRY(attn_struct_read(ours, sizeof *ours, problem, problem->struct_size, "attn_problem", error));
    TRY(attn_problem_resolve(ours, error));
    TRY(attn_kernel_choose(ours, &o, &plan->row, plan->why, sizeof plan->why, error));

    plan->allocator = attn_allocator_or_default(&o.allocator);
    walk->compute = plan->row->compute;
    walk->kernel = plan->row->forward;
    walk->backward = plan->row->backward;
    walk->jvp = plan->row->jvp;
    walk->second = plan->row->second;
    walk->decode = plan->row->decode;
    walk->parallel_for = o.parallel_for;
    walk->parallel_context = o.parallel_context;
    if (ours->bias_table.used) TRY(attn_bias_table_rule(&ours->bias_table, &walk->tables.rule, error));
    int64_t w_shape[2];
    attn_problem_w_shape(ours, w_shape);
    CHECK(attn_prepare_problem(ours, &walk->problem) && attn_relative_problem(ours, &walk->problem) &&
              attn_walk_init(walk, o.threads ? o.threads : attn_threads_default()) &&
              attn_prepare_init(&plan->prepare, walk, w_shape) && attn_walk_bytes(walk) <= INT64_MAX - 64 - plan->prepare.bytes,
          ATTN_ERR_SHAPE, "the sizes are too large: a workspace or task count overflows 64 bits");
    const size_t length = strlen(plan->why);
    if (walk->short_heads)
        (void)snprintf(plan->why + length, sizeof plan->why - length, "; all of a head at once, since it is short");
    return ATTN_OK;
}

static void say(const attn_plan *plan)
{
    const char *verbose = getenv("ATTN_VERBOSE");
    const attn_shape *s = &plan->walk.problem.shape;
    if (!verbose || strcmp(verbose, "1") != 0) return;
    (void)fprintf(stderr, "libattn: %s (%s) b%lld hq%lld hkv%lld sq%lld skv%lld d%lld dv%lld: %lld tasks, %d threads\n",
                  plan->row->name, plan->why, (long long)s->batch, (long long)s->heads_q, (long long)s->heads_kv,
                  (long long)s->len_q, (long long)s->len_kv, (long long)s->dim_qk, (long long)s->dim_v, (long long)plan->walk.tasks,
                  plan->walk.workers);
}

attn_status attn_plan_create(attn_plan **plan, const attn_problem *problem, const attn_options *options, attn_error *error)
{
    attn_plan made;
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    *plan = NULL;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    TRY(make(&made, problem, options, error));
    *plan = made.allocator.allocate(made.allocator.context, sizeof made);
    CHECK(*plan, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan", sizeof made);
    **plan = made;
    say(*plan);
    return attn_succeed(error);
}

size_t attn_plan_workspace_size(const attn_plan *plan)
{
    if (!plan || (plan->walk.tasks == 0 && plan->prepare.bytes == 0)) return 0;
    return (size_t)(plan->prepare.bytes + attn_walk_bytes(&plan->walk)) + 63; /* room to align */
}

void attn_plan_destroy(attn_plan *plan)
{
    if (plan) plan->allocator.release(plan->allocator.context, plan);
}

attn_status attn_plan_describe(const attn_plan *plan, attn_plan_description *description, attn_error *error)
{
    attn_plan_description d = {0};
    attn_tile_count count;
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    CHECK(description, ATTN_ERR_ARGUMENT, "description is NULL");
    CHECK(description->struct_size >= sizeof(size_t), ATTN_ERR_ARGUMENT,
          "attn_plan_description.struct_size is %zu; set it to sizeof(attn_plan_description)", description->struct_size);
    attn_walk_count(&plan->walk, &count);
    d.kernel = plan->row->name;
    d.why = plan->why;
    d.isa = plan->row->isa;
    d.compute = plan->row->compute;
    d.threads = plan->walk.workers;
    d.tile_q = plan->walk.decode ? plan->walk.problem.shape.len_q : plan->walk.tile_q;
    d.block_kv = plan->walk.block_kv;
    d.tiles_total = count.total;
    d.tiles_visited = count.visited;
    d.tiles_modified = count.modified;
    d.workspace_bytes = attn_plan_workspace_size(plan);
    d.flops = 2.0 * (double)(plan->walk.problem.shape.dim_qk + plan->walk.problem.shape.dim_v) * count.pairs;
    attn_struct_write(description, description->struct_size, &d, sizeof d);
    return attn_succeed(error);
}
