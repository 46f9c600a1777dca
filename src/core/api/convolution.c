/* SPDX-License-Identifier: MIT
 * convolution.c - the public function of attn/convolution.h. */
#include "attn/convolution.h"

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "../plan/convolution.h"
#include "../plan/plan.h"

/* Chooses the kernel and the workers: as many as options.workspace_limit leaves memory for. */
static attn_status plan(attn_convolution_walk *w, const attn_options *o, attn_error *error)
{
    const attn_kernel_row *row;
    int threads;
    CHECK(!o->reproducible, ATTN_ERR_UNSUPPORTED,
          "options.reproducible is set; the bits of convolutions depend on the instruction set");
    w->compute = w->problem.at.x.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    TRY(attn_kernel_best(ATTN_LINEAR, w->compute, o, &row, error));
    attn_kernel_assemble(row, &w->kernel);
    w->parallel_for = o->parallel_for;
    w->parallel_context = o->parallel_context;
    TRY(attn_threads_choose(o->threads, &threads, error));
    attn_convolution_walk_init(w, threads);
    return ATTN_OK;
}

/* Bytes of memory for the workers, or for the table of rows before they begin; 0 if that is too much for any computer. */
static size_t need_of(const attn_convolution_walk *w)
{
    const attn_convolution_resolved *p = &w->problem;
    const int64_t entries = attn_state_lists_capacity(p->has.initial_slots || p->has.final_slots, p->batch, p->snapshots);
    return entries < 0 ? 0 : (size_t)attn_max(w->workers * w->bytes, 16 * entries) + 63;
}

attn_status attn_convolution(const attn_convolution_problem *problem, const attn_convolution_tensors *tensors,
                             const attn_options *options, attn_error *error)
{
    attn_options o = {0};
    attn_convolution_walk w = {.workers = 1};
    attn_convolution_args args;
    attn_planned_tensor list[ATTN_CONVOLUTION_SLOTS];
    int count;
    void *workspace;
    CHECK(problem, ATTN_ERR_ARGUMENT, "problem is NULL");
    CHECK(tensors, ATTN_ERR_ARGUMENT, "tensors is NULL");
    if (options) TRY(attn_struct_read(&o, sizeof o, sizeof o, options, "attn_options", error));
    TRY(attn_options_validate(&o, error));
    TRY(attn_convolution_resolve(problem, tensors, &w.problem, list, &count, error));
    TRY(plan(&w, &o, error));
    while (w.workers > 1 && o.workspace_limit && need_of(&w) > o.workspace_limit) w.workers--;
    const size_t need = need_of(&w);
    CHECK(need, ATTN_ERR_SHAPE, "snapshots and batch are too large: the bytes of their lists overflow 64 bits");
    CHECK(!o.workspace_limit || need <= o.workspace_limit, ATTN_ERR_MEMORY,
          "the workspace would have %zu bytes; options.workspace_limit is %zu", need, o.workspace_limit);
    TRY(attn_convolution_bind(&w.problem, list, count, tensors, &args, error));
    const attn_allocator allocator = attn_allocator_or_default(&o.allocator);
    TRY(attn_workspace_acquire(&allocator, need, &workspace, error));
    const attn_state_lists lists = attn_convolution_lists(&w.problem, &args);
    const attn_status status = attn_state_lists_distinct(&lists, attn_workspace_align(workspace), error);
    const int64_t tokens = args.cu_seqlens ? attn_index_at(args.cu_seqlens, w.problem.at.cu_seqlens.dtype, w.problem.batch) : 0;
    if (status == ATTN_OK && !attn_tensors_write_nothing(&attn_convolution_family, list, count, tokens, tokens))
        attn_run_convolution(&w, &args, attn_workspace_align(workspace));
    attn_workspace_release(&allocator, workspace);
    return status == ATTN_OK ? attn_succeed(error) : status;
}
