/* SPDX-License-Identifier: MIT
 * linear.c - problems of linear attention. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "candidate.h"
#include "memory.h"
#include "testing/problem/linear_problem.h"
#include "testing/random/normal.h"
#include "testing/text/failure.h"

typedef struct linear_work {
    attn_linear_problem problem;
    attn_linear_tensors tensors; /* of forward and backward */
    attn_linear_tensors called;  /* of the operation */
    attn_linear_plan *plan;
    void *block[LINEARS];
    size_t bytes[LINEARS];
    int blocks;
} linear_work;

/* Normal numbers; decays below 0, betas between 0 and 1, and vectors of the low-rank rule that keep the state bounded. */
static void fill(const attn_linear_problem *p, int t, attn_dtype dtype, char *memory, size_t bytes, random_state *random)
{
    const size_t size = attn_dtype_size(dtype);
    for (size_t at = 0; at < bytes; at += size) {
        double x = random_normal(random);
        if (t == LINEAR(decay)) x = -fabs(x) / 16;
        if (t == LINEAR(beta)) x = 1 / (1 + exp(x));
        if (t == LINEAR(erase) || t == LINEAR(write)) x /= 8 * sqrt((double)p->shape.dim_qk + 1);
        if (t == LINEAR(k) && p->rule) x /= sqrt((double)p->shape.dim_qk + 1);
        (void)attn_convert(1, &x, ATTN_F64, memory + at, dtype, NULL);
    }
}

typedef struct drawing {
    linear_work *l;
    random_state random;
    uint64_t seed;
} drawing;

/* Fresh memory; final states share the memory of the initial ones. */
static void *take(void *context, int t, const attn_tensor_plan *about)
{
    drawing *d = context;
    linear_work *l = d->l;
    const int state = t == LINEAR(initial_state) || t == LINEAR(initial_sum);
    if (t == LINEAR(final_state)) return (void *)(uintptr_t)l->tensors.initial_state.data;
    if (t == LINEAR(final_sum)) return (void *)(uintptr_t)l->tensors.initial_sum.data;
    const size_t bytes = (size_t)about->bytes;
    char *memory = fresh_memory(bytes);
    l->block[l->blocks] = memory;
    l->bytes[l->blocks++] = bytes;
    if (t == LINEAR(feature_matrix))
        (void)attn_random_features(ATTN_RANDOM_ROWS_ORTHOGONAL, l->problem.random_features, l->problem.shape.dim_qk, d->seed, 0,
                                   &(attn_output){memory, about->dtype, {0, 0, 0, 0}}, NULL);
    else if (about->role == ATTN_ROLE_INPUT && !state) fill(&l->problem, t, about->dtype, memory, bytes, &d->random);
    return memory;
}

static attn_status run(const attn_linear_plan *plan, const attn_linear_tensors *tensors, attn_error *error)
{
    const size_t size = attn_linear_plan_workspace_size(plan);
    void *workspace = fresh_memory(size);
    const attn_status status = attn_linear_execute(plan, tensors, workspace, size, error);
    fresh_release(workspace, size);
    return status;
}

/* Computes what backward reads. */
static attn_status run_forward(linear_work *l, drawing *d, const attn_options *options, attn_error *error)
{
    attn_linear_problem forward = l->problem;
    attn_linear_plan *plan = NULL;
    forward.op = ATTN_FORWARD;
    attn_status status = linear_plan(&plan, &forward, &l->tensors, options, take, d, error);
    const attn_linear_tensors tensors = linear_of_op(&forward, &l->tensors);
    if (status == ATTN_OK) status = run(plan, &tensors, error);
    attn_linear_plan_destroy(plan);
    return status;
}

static attn_status create(candidate *c, const operand *o, const attn_options *options, attn_error *error)
{
    linear_work *l = c->state = need_memory(1, sizeof *l);
    attn_linear_plan_description says = {.struct_size = sizeof says};
    drawing d = {l, {o->spec.seed}, o->spec.seed};
    attn_status status = linear_problem_build(&o->spec, &l->problem, &l->tensors, error);
    if (status == ATTN_OK && l->problem.op == ATTN_BACKWARD) status = run_forward(l, &d, options, error);
    if (status == ATTN_OK) status = linear_plan(&l->plan, &l->problem, &l->tensors, options, take, &d, error);
    if (status == ATTN_OK) status = attn_linear_plan_describe(l->plan, &says, error);
    if (status != ATTN_OK) return status;
    l->called = linear_of_op(&l->problem, &l->tensors);
    for (int k = 0; k < l->blocks; k++) c->data.bytes += (double)l->bytes[k];
    c->problem.op = l->problem.op;
    c->problem.shape = l->problem.shape;
    c->data.tokens = l->problem.shape.batch * l->problem.shape.len_q;
    c->flops = says.flops;
    c->plan_says.kernel = says.kernel;
    c->plan_says.why = says.why;
    c->plan_says.isa = says.isa;
    c->plan_says.compute = says.compute;
    c->plan_says.threads = says.threads;
    c->plan_says.workspace_bytes = says.workspace_bytes;
    return ATTN_OK;
}

static attn_status execute(candidate *c, attn_error *error)
{
    const linear_work *l = c->state;
    return attn_linear_execute(l->plan, &l->called, c->workspace, c->plan_says.workspace_bytes, error);
}

static void destroy(candidate *c)
{
    linear_work *l = c->state;
    if (!l) return;
    for (int k = 0; k < l->blocks; k++) fresh_release(l->block[k], l->bytes[k]);
    attn_linear_plan_destroy(l->plan);
    free(l);
}

const candidate_kind linear_kind = {NULL, create, NULL, execute, destroy};
