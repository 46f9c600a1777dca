/* SPDX-License-Identifier: MIT
 *
 * compute.c - plans and runs a problem for a command: workspace, threads, progress. */
#include "compute.h"

#include <stdlib.h>

#include "cli/base/progress.h"
#include "slice.h"
#include "testing/text/failure.h"

attn_status computation_begin(computation *c, const attn_problem *problem, const attn_tensors *tensors,
                              const common_settings *common, attn_error *error)
{
    *c = (computation){.description.struct_size = sizeof c->description};
    attn_options options = options_for_library(common);
    attn_status status = attn_plan_create(&c->plan, problem, tensors, &options, error);
    if (status == ATTN_OK) status = attn_plan_describe(c->plan, &c->description, error);
    if (status != ATTN_OK) return status;
    c->workspace_bytes = attn_plan_workspace_size(c->plan);
    c->workspace = need_memory((int64_t)c->workspace_bytes, 1);
    return ATTN_OK;
}

attn_status computation_run(const computation *c, const attn_tensors *tensors, attn_error *error)
{
    return attn_execute(c->plan, tensors, c->workspace, c->workspace_bytes, error);
}

void computation_end(computation *c)
{
    free(c->workspace);
    attn_plan_destroy(c->plan);
}

/* Flops that any CPU does within a second. */
static const double short_work = 2e9;

static int is_short(const computation *c, const progress *bar) { return c->description.flops < short_work && !bar->eager; }

/* Slices of each batch entry: enough for a bar that moves, few enough that each keeps all threads busy. */
enum { SLICES = 50, SLICE_ROWS = 512 };

/* A slice is rows of queries: problems with outputs that sum over queries, or count them from the first, run as a whole. */
static int can_slice(const attn_problem *p, const attn_tensors *all)
{
    for (int t = 0; t < TENSORS; t++)
        if (t != TENSOR(o) && t != TENSOR(lse) && t != TENSOR(weights) && tensors_writes(all, p->op, t)) return 0;
    return slicer_can(p, all);
}

static attn_status run_slices(const slicer *s, int64_t rows, int64_t first, int64_t end, const common_settings *common,
                              progress *bar, attn_error *error)
{
    const attn_shape *shape = &s->whole.shape;
    computation c;
    attn_tensors tensors;
    const attn_problem part = slicer_problem(s, rows, &tensors);
    attn_status status = computation_begin(&c, &part, &tensors, common, error);
    for (int64_t i = first; i < end && status == ATTN_OK; i += rows) {
        for (int64_t b = 0; b < shape->batch && status == ATTN_OK; b++) {
            slice now;
            slicer_take(s, b, i, rows, &now);
            status = computation_run(&c, &now.tensors, error);
            progress_show(bar, i * shape->batch + (b + 1) * rows, shape->len_q * shape->batch);
        }
    }
    computation_end(&c);
    return status;
}

attn_status compute_all(const computation *c, const attn_problem *problem, const attn_tensors *tensors,
                        const common_settings *common, const char *label, attn_error *error)
{
    progress bar;
    progress_begin(&bar, label, common->quiet);
    if (!bar.shown || !can_slice(problem, tensors) || is_short(c, &bar)) return computation_run(c, tensors, error);

    slicer s;
    slicer_init(&s, problem, tensors);
    int64_t len_q = problem->shape.len_q, rows = (len_q / SLICES / SLICE_ROWS + 1) * SLICE_ROWS;
    if (rows > len_q) rows = len_q;
    int64_t even = len_q / rows * rows;
    if (even < len_q) even -= rows; /* a short rest would get another kernel, and other bits than in the whole */
    attn_status status = run_slices(&s, rows, 0, even, common, &bar, error);
    if (status == ATTN_OK && even < len_q) status = run_slices(&s, len_q - even, even, len_q, common, &bar, error);
    progress_end(&bar);
    return status;
}

attn_status compute_backward(const computation *c, const attn_problem *problem, const attn_tensors *tensors,
                             const common_settings *common, attn_error *error)
{
    progress bar;
    const int64_t batch = problem->shape.batch, heads = problem->shape.heads_kv;
    progress_begin(&bar, "gradients", common->quiet);
    if (!bar.shown || !slice_heads_can(problem, tensors) || batch * heads < 2 || is_short(c, &bar))
        return computation_run(c, tensors, error);

    computation one;
    const attn_problem part = slice_heads_problem(problem);
    attn_tensors now = slice_heads_tensors(problem, tensors, 0, 0);
    attn_status status = computation_begin(&one, &part, &now, common, error);
    for (int64_t n = 0; n < batch * heads && status == ATTN_OK; n++) {
        now = slice_heads_tensors(problem, tensors, n / heads, n % heads);
        status = computation_run(&one, &now, error);
        progress_show(&bar, n + 1, batch * heads);
    }
    computation_end(&one);
    progress_end(&bar);
    return status;
}
