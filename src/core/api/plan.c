/* SPDX-License-Identifier: MIT
 * plan.c - attn_plan_create, attn_plan_workspace_size, attn_plan_describe, attn_plan_destroy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../plan/plan.h"

/* Everything of a plan except its memory and its walks; fills list and parts. */
static attn_status choose(attn_plan *plan, const attn_problem *problem, const attn_tensors *tensors, const attn_options *options,
                          attn_options *o, attn_planned_tensor *list, attn_plan_part *parts, attn_error *error)
{
    plan->tensors = plan->parts = 0;
    if (options) TRY(attn_struct_read(o, sizeof *o, sizeof *o, options, "attn_options", error));
    TRY(attn_options_validate(o, error));
    plan->allocator = attn_allocator_or_default(&o->allocator);
    TRY(attn_problem_read(&plan->problem, problem, tensors, error));
    plan->problem.invariant = o->invariant;
    plan->problem.reproducible = o->reproducible;
    TRY(attn_problem_resolve(&plan->problem, tensors, list, &plan->tensors, error));
    return attn_plan_parts_choose(&plan->problem, o, parts, &plan->parts, plan->why, sizeof plan->why, error);
}

/* 1 if no execution has anything to do.  (How many packed tokens there are is not known yet, only whether there can be any.) */
static int is_always_idle(const attn_plan *plan)
{
    const attn_shape *shape = &plan->problem.shape;
    return attn_plan_is_idle(plan, shape->batch > 0 && shape->len_q > 0, shape->batch > 0 && shape->len_kv > 0);
}

static attn_status make_parts(const attn_plan *plan, const attn_options *options, attn_error *error)
{
    attn_options o = *options;
    size_t most = 0, bytes;
    if (is_always_idle(plan)) o.workspace_limit = 0; /* it needs no workspace */
    for (int n = 0; n < plan->parts; n++) {
        TRY(attn_plan_part_make(&plan->problem, &o, &plan->part[n], n + 1 < plan->parts, plan->parts == 1, &bytes, error));
        if (bytes > most) most = bytes;
    }
    return attn_plan_check_limit(o.workspace_limit, most, error);
}

static void say(const attn_plan *plan)
{
    const char *verbose = getenv("ATTN_VERBOSE");
    const attn_shape *s = &plan->problem.shape;
    if (!verbose || strcmp(verbose, "1") != 0) return;
    (void)fprintf(stderr, "libattn: %s (%s) b%lld hq%lld hkv%lld sq%lld skv%lld d%lld dv%lld: %lld tasks, %d threads\n",
                  plan->part->row->name, plan->why, (long long)s->batch, (long long)s->heads_q, (long long)s->heads_kv,
                  (long long)s->len_q, (long long)s->len_kv, (long long)s->dim_qk, (long long)s->dim_v,
                  (long long)plan->part->walk->tasks, plan->part->walk->workers);
}

static size_t round_up(size_t bytes) { return (size_t)attn_round_64((int64_t)bytes); }

attn_status attn_plan_create(attn_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
                             const attn_options *options, attn_error *error)
{
    attn_planned_tensor list[ATTN_SLOTS];
    attn_plan_part parts[ATTN_MAX_PLAN_PARTS];
    attn_plan made;
    attn_options o = {0};
    CHECK(plan, ATTN_ERR_ARGUMENT, "plan is NULL");
    *plan = NULL;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    TRY(choose(&made, problem, tensors, options, &o, list, parts, error));
    const size_t head = round_up(sizeof made), of_parts = round_up((size_t)made.parts * sizeof *parts);
    const size_t of_tensors = round_up((size_t)made.tensors * sizeof *list);
    size_t bytes = head + of_parts + of_tensors;
    for (int n = 0; n < made.parts; n++) bytes += round_up(parts[n].type->size);
    char *block = made.allocator.allocate(made.allocator.context, bytes);
    CHECK(block, ATTN_ERR_MEMORY, "cannot allocate the %zu bytes of a plan", bytes);
    *plan = (attn_plan *)(void *)block;
    **plan = made;
    (*plan)->part = memcpy(block + head, parts, (size_t)made.parts * sizeof *parts);
    (*plan)->tensor = memcpy(block + head + of_parts, list, (size_t)made.tensors * sizeof *list);
    char *walk = block + head + of_parts + of_tensors;
    for (int n = 0; n < made.parts; n++, walk += round_up(parts[n - 1].type->size))
        (*plan)->part[n].walk = (attn_walk *)(void *)walk;
    const attn_status status = make_parts(*plan, &o, error);
    if (status != ATTN_OK) {
        attn_plan_destroy(*plan);
        *plan = NULL;
        return status;
    }
    say(*plan);
    return attn_succeed(error);
}

/* Parts run one after another, in the same memory. */
size_t attn_plan_workspace_size(const attn_plan *plan)
{
    size_t most = 0;
    if (!plan || is_always_idle(plan)) return 0;
    for (int n = 0; n < plan->parts; n++) {
        const size_t bytes = attn_plan_part_bytes(&plan->part[n]);
        if (bytes > most) most = bytes;
    }
    return most;
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
    TRY(attn_struct_check(description->struct_size, sizeof d, "attn_plan_description", error));
    /* For a ragged batch, whose lengths are not known yet, the walk of its longest sequences. */
    const attn_plan_part *part = &plan->part[plan->parts - 1];
    const attn_walk *walk = part->walk;
    attn_walk_count(walk, &count);
    d.kernel = part->row->name;
    d.why = plan->why;
    d.isa = part->row->isa;
    d.compute = part->row->compute;
    d.threads = walk->workers;
    d.tile_q = walk->tile_q;
    d.block_kv = walk->block_kv;
    d.tiles_total = count.total;
    d.tiles_visited = count.visited;
    d.tiles_modified = count.modified;
    d.workspace_bytes = attn_plan_workspace_size(plan);
    d.flops = 2.0 * (double)(walk->problem.shape.dim_qk + walk->problem.shape.dim_v) * count.pairs;
    attn_struct_write(description, &d, sizeof d);
    return attn_succeed(error);
}
