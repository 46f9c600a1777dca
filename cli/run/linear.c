/* SPDX-License-Identifier: MIT
 * linear.c - see linear.h. */
#include "linear.h"

#include <stdlib.h>

#include "testing/text/failure.h"

/* ---- planning ---- */

/* Allocates outputs in the file; gradients of q, k and v in the shapes of these. */
static void *take(void *context, int t, const attn_tensor_plan *about)
{
    linear_work *work = context;
    int64_t shape[ATTN_MAX_RANK];
    void *memory = NULL;
    attn_error error;
    if (t == LINEAR(denominators)) return linear_input_own(&work->input, about->bytes, 1);
    const int rank = linear_shape(&work->input, t, about->shape, shape);
    if (attn_archive_allocate(work->out, linear_file_name(t), about->dtype, rank, shape, &memory, &error) != ATTN_OK) return NULL;
    return memory ? memory : ATTN_EMPTY;
}

static attn_status add_weights(linear_work *work, attn_error *error)
{
    int64_t size[4], shape[ATTN_MAX_RANK];
    if (!work->input.spec.weights) return ATTN_OK;
    const int rank = linear_weights_shape(&work->input, size, shape);
    return attn_archive_allocate(work->out, "weights", linear_compute(&work->input), rank, shape, &work->weights, error);
}

attn_status linear_work_begin(linear_work *work, const attention_input *input, const input_settings *settings, int state,
                              attn_archive *out, const common_settings *common, attn_error *error)
{
    *work = (linear_work){.out = out, .description.struct_size = sizeof work->description};
    attn_linear_tensors *all = &work->input.tensors;
    attn_options options = options_for_library(common);
    attn_status status = linear_input_read(&work->input, input, settings, state, error);
    const attn_linear_problem *p = &work->input.problem;
    attn_linear_problem forward = *p;
    forward.op = ATTN_FORWARD;
    if (status == ATTN_OK) status = linear_plan(&work->plan, &forward, all, &options, take, work, error);
    if (status == ATTN_OK) status = attn_linear_plan_describe(work->plan, &work->description, error);
    if (status == ATTN_OK) status = add_weights(work, error);
    if (status != ATTN_OK || p->op == ATTN_FORWARD) return status;
    return linear_plan(&work->backward, p, all, &options, take, work, error);
}

/* ---- running ---- */

static attn_status execute(const attn_linear_tensors *tensors, const attn_linear_plan *plan, attn_error *error)
{
    const size_t size = attn_linear_plan_workspace_size(plan);
    void *workspace = need_memory((int64_t)size + 1, 1);
    const attn_status status = attn_linear_execute(plan, tensors, workspace, size, error);
    free(workspace);
    return status;
}

static attn_status run_one(const linear_work *work, attn_op op, const attn_linear_plan *plan, attn_error *error)
{
    attn_linear_problem p = work->input.problem;
    p.op = op;
    const attn_linear_tensors tensors = linear_of_op(&p, &work->input.tensors);
    return execute(&tensors, plan, error);
}

static attn_status run_weights(const linear_work *work, const common_settings *common, attn_error *error)
{
    attn_linear_problem p;
    attn_linear_plan *plan = NULL;
    void *identity;
    const attn_options options = options_for_library(common);
    const attn_linear_tensors tensors = linear_for_weights(&work->input, work->weights, &p, &identity);
    attn_status status = attn_linear_plan_create(&plan, &p, &tensors, &options, error);
    if (status == ATTN_OK) status = execute(&tensors, plan, error);
    attn_linear_plan_destroy(plan);
    free(identity);
    return status;
}

attn_status linear_work_run(const linear_work *work, const common_settings *common, attn_error *error)
{
    attn_status status = run_one(work, ATTN_FORWARD, work->plan, error);
    if (status == ATTN_OK && work->weights) status = run_weights(work, common, error);
    if (status == ATTN_OK && work->backward) status = run_one(work, ATTN_BACKWARD, work->backward, error);
    return status;
}

void linear_work_end(linear_work *work)
{
    attn_linear_plan_destroy(work->plan);
    attn_linear_plan_destroy(work->backward);
    linear_input_free(&work->input);
}
