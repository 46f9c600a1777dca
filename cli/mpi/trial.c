/* SPDX-License-Identifier: MIT
 * trial.c - see trial.h. */
#include "trial.h"

#include <stdlib.h>
#include <string.h>

#include "cli/base/progress.h"
#include "cli/measure/work.h"
#include "testing/problem/linear_problem.h"
#include "testing/problem/sparse.h"
#include "testing/text/failure.h"

attn_status trial_check(const problem_spec *spec, attn_error *error)
{
    attn_problem problem;
    attn_tensors tensors;
    if (linear_problem_is(spec))
        return failure(error, ATTN_ERR_UNSUPPORTED, "bench measures softmax attention; linear attention is not there yet");
    if (spec->packed || spec->ragged || spec->page || spec->schedule || spec->lengths || spec->offset_kind == SPEC_OFFSET_EACH)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "scaling is measured for sequences of one length: without packed, ragged, page, schedule, lens, offset");
    const attn_status status = problem_build(spec, &problem, &tensors, error);
    return status == ATTN_OK ? sparse_check_fields(spec, error) : status;
}

/* ---- tensors ---- */

/* Memory of the rows of this rank, with numbers if it is read; what all ranks have gets the same numbers on all. */
static void fill(trial *t, const problem_spec *spec, int tensor, attn_op op)
{
    const attention_input *input = &t->input;
    const attn_axis rows = tensors_about(tensor)->axes[2];
    const share_layout layout = {.keys = rows == ATTN_AXIS_KEY, .unit = rows == ATTN_AXIS_BLOCK_Q ? spec->block_q : 1};
    int64_t extent[4], elements = 1;
    tensors_extent(&input->problem, &t->tensors, tensor, extent);
    const int is_shared = rows == ATTN_AXIS_QUERY || rows == ATTN_AXIS_KEY || rows == ATTN_AXIS_BLOCK_Q;
    if (is_shared && !tensors_broadcasts(&t->tensors, tensor, 2)) extent[2] = share_rows(&input->share, &layout);
    for (int axis = 0; axis < 4; axis++) elements *= extent[axis];
    const size_t bytes = (size_t)elements * attn_dtype_size(tensors_dtype(&t->tensors, tensor));
    random_state random = {spec->seed + (uint64_t)tensor + (is_shared ? 4096 * (uint64_t)t->mine.rank : 0)};
    void *memory = t->memory[t->count++] = need_memory((int64_t)bytes, 1);
    if (tensors_reads(&t->tensors, op, tensor)) draw_tensor(&random, spec, &input->problem, &t->tensors, tensor, memory, bytes);
    if (tensor == TENSOR(offset_q))
        for (int64_t b = 0; b < elements; b++) ((int64_t *)memory)[b] = spec->offset;
    tensors_slot(&t->tensors, tensor)->data = memory;
}

static attn_status build(trial *t, const problem_spec *spec, attn_error *error)
{
    attention_input *input = &t->input;
    attn_status status = trial_check(spec, error);
    if (status == ATTN_OK) status = problem_build(spec, &input->problem, &input->tensors, error);
    if (status != ATTN_OK) return status;
    input->spec = *spec;
    input->total_q = spec->shape.len_q;
    input->total_kv = spec->shape.len_kv;
    input->is_shared = 1;
    status = split_choose(&t->mine, input->total_q, input->total_kv, &input->share, error);
    if (status != ATTN_OK) return status;
    input->call = (attn_call){.struct_size = sizeof input->call, .dropout_seed = spec->seed};
    input->tensors.call = &input->call;
    input_lay_share(input);
    t->tensors = input->tensors;
    for (int tensor = 0; tensor < TENSORS; tensor++)
        if (tensors_at(&t->tensors, tensor)->data == ATTN_LATER) fill(t, spec, tensor, input->problem.op);
    t->flops = problem_flops(&input->problem, visible_pairs(&input->problem, NULL, NULL, NULL, t->tensors.offset_q.data));
    return ATTN_OK;
}

/* ---- running ---- */

static attn_status plan_of(const trial *t, const attn_problem *problem, const attn_tensors *tensors, const common_settings *common,
                           attn_distributed_plan **plan, attn_error *error)
{
    const attn_options options = options_for_library(common);
    return ranks_check(
        t->ranks, attn_distributed_plan_create(plan, problem, tensors, &t->mine.split, &t->messages.transport, &options, error),
        error);
}

static attn_status execute(const trial *t, const attn_distributed_plan *plan, const attn_tensors *tensors, void *workspace,
                           attn_error *error)
{
    return ranks_check(t->ranks, attn_distributed_execute(plan, tensors, workspace, attn_distributed_workspace_size(plan), error),
                       error);
}

/* The forward pass whose o and lse the operation reads. */
static attn_status run_forward(trial *t, const common_settings *common, attn_error *error)
{
    attn_tensors tensors;
    attn_distributed_plan *plan = NULL;
    const attn_problem forward = tensors_forward(&t->input.problem, &t->tensors, &tensors);
    attn_status status = plan_of(t, &forward, &tensors, common, &plan, error);
    if (status != ATTN_OK) return status;
    void *workspace = need_memory((int64_t)attn_distributed_workspace_size(plan), 1);
    status = execute(t, plan, &tensors, workspace, error);
    free(workspace);
    attn_distributed_plan_destroy(plan);
    return status;
}

attn_status trial_begin(trial *t, const problem_spec *spec, const ranks *r, const split_settings *split,
                        const common_settings *common, attn_error *error)
{
    *t = (trial){.ranks = r,
                 .mine = {.split = split_of(split, spec), .rank = r->rank, .ranks = r->count},
                 .about.struct_size = sizeof t->about};
    t->machine = machine_of(&split->machine);
    t->mine.split.machine = &t->machine;
    timed_init(&t->messages, &r->mpi.transport);
    attn_status status = ranks_agree(r, build(t, spec, error), error);
    if (status == ATTN_OK && t->input.problem.op != ATTN_FORWARD) status = run_forward(t, common, error);
    if (status == ATTN_OK) status = plan_of(t, &t->input.problem, &t->tensors, common, &t->plan, error);
    if (status == ATTN_OK) status = attn_distributed_describe(t->plan, &t->about, error);
    if (status == ATTN_OK) t->workspace = need_memory((int64_t)t->about.workspace_bytes, 1);
    return status;
}

attn_status trial_run(trial *t, double *seconds, double *share, attn_error *error)
{
    double mine[2], most = 0, sum[2] = {0, 0};
    t->messages.seconds = 0;
    (void)MPI_Barrier(t->ranks->all);
    const double begin = seconds_now();
    const attn_status status = execute(t, t->plan, &t->tensors, t->workspace, error);
    mine[0] = seconds_now() - begin;
    mine[1] = t->messages.seconds;
    (void)MPI_Allreduce(mine, &most, 1, MPI_DOUBLE, MPI_MAX, t->ranks->all);
    (void)MPI_Allreduce(mine, sum, 2, MPI_DOUBLE, MPI_SUM, t->ranks->all);
    *seconds = most;
    *share = sum[0] > 0 ? sum[1] / sum[0] : 0;
    return status;
}

void trial_end(trial *t)
{
    attn_distributed_plan_destroy(t->plan);
    for (int n = 0; n < t->count; n++) free(t->memory[n]);
    free(t->workspace);
    split_rank_free(&t->mine);
}
