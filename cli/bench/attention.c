/* SPDX-License-Identifier: MIT
 * attention.c - problem strings: attention forward, its gradients and tangents, by one plan, with a schedule or without. */
#include "attention.h"

#include "attn/schedule.h"
#include "cli/measure/work.h"
#include "memory.h"
#include "testing/problem/serving.h"

/* Execution has a schedule, and the workspace of that, from here on. */
static attn_status make_schedule(candidate *c, const problem_spec *spec, attn_error *error)
{
    const attn_schedule *schedule;
    attn_prefix prefix;
    const attn_schedule_options known = serving_options(spec, &prefix);
    c->schedule_bytes = attn_schedule_size(c->plan);
    c->schedule = fresh_memory(c->schedule_bytes);
    const attn_status status =
        attn_schedule_make(&schedule, c->plan, &c->data.tensors, c->schedule, c->schedule_bytes, &known, error);
    if (status != ATTN_OK) return status;
    c->data.call.schedule = schedule;
    c->data.tensors.call = &c->data.call; /* the data may have moved since they were drawn */
    c->plan_says.workspace_bytes = attn_schedule_workspace_size(schedule);
    return ATTN_OK;
}

attn_status attention_draw(candidate *c, const problem_spec *spec, const attn_problem *problem, const attn_tensors *tensors,
                           const attn_options *options, attn_error *error)
{
    attn_plan *trial; /* whatever the library rejects is rejected before gigabytes are filled */
    attn_status status = attn_plan_create(&trial, problem, tensors, options, error);
    if (status != ATTN_OK) return status;
    attn_plan_destroy(trial);
    c->problem = *problem;
    status = data_create(&c->data, spec, &c->problem, tensors, options, error);
    if (c->data.pages > 0) c->problem.paging.pages = c->data.pages; /* those that have memory, so that no other tensor lies there */
    c->flops = problem_flops(&c->problem, c->data.pairs);
    return status;
}

attn_status attention_plan(candidate *c, const operand *o, const attn_options *options, attn_error *error)
{
    attn_status status = attn_plan_create(&c->plan, &c->problem, &c->data.tensors, options, error);
    if (status == ATTN_OK) status = attn_plan_describe(c->plan, &c->plan_says, error);
    if (status == ATTN_OK && o->spec.schedule) status = make_schedule(c, &o->spec, error);
    return status;
}

attn_status attention_execute(candidate *c, attn_error *error)
{
    return attn_execute(c->plan, &c->data.tensors, c->workspace, c->plan_says.workspace_bytes, error);
}

static attn_status create(candidate *c, const operand *o, const attn_options *options, attn_error *error)
{
    attn_problem problem;
    attn_tensors tensors;
    const attn_status status = problem_build(&o->spec, &problem, &tensors, error);
    return status == ATTN_OK ? attention_draw(c, &o->spec, &problem, &tensors, options, error) : status;
}

static void destroy(candidate *c) { (void)c; }

const candidate_kind attention_kind = {NULL, create, attention_plan, attention_execute, destroy};
