/* SPDX-License-Identifier: MIT
 * linear.c - see linear.h. */
#include "linear.h"

#include <stdlib.h>

#include "testing/text/failure.h"

/* ---- memory ---- */

typedef struct taking {
    linear_input *input;
    results *all;
    attn_archive *out;
    attn_status status;
    attn_error *error;
} taking;

/* A linear_take, which leaves the plan as it is: that is of the whole, and what is taken are the rows of this rank. */
static void *take(void *context, int t, const attn_tensor_plan *about)
{
    taking *k = context;
    attn_output *slot = linear_slot(&k->input->tensors, t);
    int64_t shape[ATTN_MAX_RANK];
    share_layout layout;
    if (slot->data != ATTN_LATER || k->status != ATTN_OK) return NULL;
    const int rank = linear_shape(k->input, t, about->shape, shape),
              is_shared = linear_lay(k->input, t, rank, shape, about->dtype, &layout);
    if (t == LINEAR(denominators)) { /* which are not written */
        slot->data = linear_input_own(k->input, layout.outer * share_rows(&k->input->input->share, &layout), layout.row);
        return NULL;
    }
    k->status = results_take(k->all, k->input->input, linear_file_name(t), about->dtype, rank, shape, is_shared ? &layout : NULL,
                             k->out, k->error);
    slot->data = k->all->all[k->all->count - 1].own;
    return NULL;
}

/* Memory for what an operation writes, in the shapes and types that a plan of the whole has. */
static attn_status take_all(taking *k, attn_op op, const attn_options *options)
{
    attn_linear_tensors whole = k->input->tensors;
    attn_linear_problem problem = k->input->problem;
    attn_linear_plan *plan = NULL;
    problem.op = op;
    for (int t = 0; t < LINEARS; t++) {
        attn_output *slot = linear_slot(&whole, t);
        if (slot->data) *slot = (attn_output){ATTN_LATER, slot->dtype, {0, 0, 0, 0}};
    }
    const attn_status status = linear_plan(&plan, &problem, &whole, options, take, k, k->error);
    attn_linear_plan_destroy(plan);
    return status == ATTN_OK ? k->status : status;
}

static attn_status take_weights(taking *k)
{
    int64_t size[4], shape[ATTN_MAX_RANK];
    share_layout layout;
    const attn_dtype dtype = linear_compute(k->input);
    const int rank = linear_weights_shape(k->input, size, shape),
              is_shared = share_lay(k->input->input, TENSOR(weights), rank, shape, dtype, &layout);
    return results_take(k->all, k->input->input, "weights", dtype, rank, shape, is_shared ? &layout : NULL, k->out, k->error);
}

/* ---- planning ---- */

static attn_status plan(linear_ranks *l, const attn_linear_problem *problem, const attn_linear_tensors *tensors, const ranks *r,
                        const attn_split *split, const attn_options *options, attn_error *error)
{
    linear_pass *pass = &l->pass[l->passes++];
    pass->tensors = *tensors;
    return ranks_check(
        r, attn_distributed_linear_plan_create(&pass->plan, problem, tensors, split, &r->mpi.transport, options, error), error);
}

static attn_status plan_op(linear_ranks *l, attn_op op, taking *k, const ranks *r, const attn_split *split,
                           const attn_options *options, attn_error *error)
{
    attn_linear_problem problem = l->input.problem;
    problem.op = op;
    const attn_status status = ranks_agree(r, take_all(k, op, options), error);
    if (status != ATTN_OK) return status;
    const attn_linear_tensors tensors = linear_of_op(&problem, &l->input.tensors);
    return plan(l, &problem, &tensors, r, split, options, error);
}

static attn_status plan_weights(linear_ranks *l, taking *k, const ranks *r, const attn_split *split, const attn_options *options,
                                attn_error *error)
{
    attn_linear_problem problem;
    const attn_status status = ranks_agree(r, take_weights(k), error);
    if (status != ATTN_OK) return status;
    const attn_linear_tensors tensors = linear_for_weights(&l->input, k->all->all[k->all->count - 1].own, &problem, &l->identity);
    return plan(l, &problem, &tensors, r, split, options, error);
}

attn_status linear_ranks_plan(linear_ranks *l, const attention_input *input, const input_settings *settings, int state,
                              const ranks *r, const attn_split *split, results *all, attn_archive *out, attn_error *error)
{
    const attn_options options = options_for_library(&settings->common);
    taking k = {&l->input, all, out, ATTN_OK, error};
    *l = (linear_ranks){.description.struct_size = sizeof l->description};
    attn_status status = ranks_agree(r, linear_input_read(&l->input, input, settings, state, error), error);
    if (status == ATTN_OK) status = plan_op(l, ATTN_FORWARD, &k, r, split, &options, error);
    if (status == ATTN_OK) (void)attn_distributed_linear_describe(l->pass[0].plan, &l->description, NULL);
    if (status == ATTN_OK && l->input.spec.weights) status = plan_weights(l, &k, r, split, &options, error);
    if (status == ATTN_OK && l->input.problem.op == ATTN_BACKWARD)
        status = plan_op(l, ATTN_BACKWARD, &k, r, split, &options, error);
    return status == ATTN_OK ? status : failure_about(error, input->path);
}

/* ---- running ---- */

attn_status linear_ranks_run(const linear_ranks *l, const ranks *r, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (const linear_pass *p = l->pass; p < l->pass + l->passes && status == ATTN_OK; p++) {
        const size_t bytes = attn_distributed_linear_workspace_size(p->plan);
        void *workspace = need_memory((int64_t)bytes, 1);
        status = attn_distributed_linear_execute(p->plan, &p->tensors, workspace, bytes, error);
        free(workspace);
        if (ranks_check(r, status, error) != ATTN_OK) (void)failure_about(error, l->input.input->path);
    }
    return status;
}

void linear_ranks_end(linear_ranks *l)
{
    for (int n = 0; n < l->passes; n++) attn_distributed_linear_plan_destroy(l->pass[n].plan);
    free(l->identity);
    linear_input_free(&l->input);
}
