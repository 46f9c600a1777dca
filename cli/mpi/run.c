/* SPDX-License-Identifier: MIT
 *
 * run.c - `attn-mpi run`: attention over the tensors of a file by several processes, into one file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/base/commands.h"
#include "cli/base/progress.h"
#include "cli/output/summary.h"
#include "cli/output/wanted.h"
#include "commands.h"
#include "linear.h"
#include "results.h"
#include "testing/text/failure.h"

static const command_usage usage = {
    .name = "run",
    .synopsis = "IN -o OUT [options]",
    .summary = "Computes attention over the tensors q, k and v of IN by the processes that mpirun\n"
               "starts. Each reads the rows of its own tokens, and process 0 writes OUT, which has\n"
               "the same bits for any number of them. Files and flags are those of `attn run`.\n",
    .notes = "Tokens are cut into parts, whose owner --layout chooses: by default zigzag with --causal\n"
             "and no window, else contiguous. Only --part changes the bits. --layout=bshd is the order\n"
             "of the axes, as in `attn run`; both may be given. With --any-order, bits depend on\n"
             "the number of processes, --layout and --way, too.\n"
             "Linear attention (--linear, --phi, --rule) is in parts of --layout=contiguous; its states go\n"
             "from process to process (--way=ring, the default), or are found by a scan (--way=direct).\n"
             "Not there yet: of packed sequences, block masks, weights, scores and the dropout mask.\n"
             "\n"
             "Examples:\n"
             "  mpirun -n 4 attn-mpi run layer.safetensors -o out.safetensors --causal --lse\n"
             "  mpirun -n 8 attn-mpi run layer.safetensors -o out.safetensors --window=4096,0 --part=2048\n"
             "  mpirun -n 4 attn-mpi run layer.safetensors -o out.safetensors --linear --causal\n",
    .operands = {"input file"},
    .example = "mpirun -n 2 attn-mpi run IN.safetensors -o OUT.safetensors",
};

/* What the flags say. */
typedef struct mpi_run {
    run_settings run;
    split_settings split;
} mpi_run;

/* A forward pass, and the pass beyond it, if there is one. */
typedef struct work {
    const mpi_run *given;
    const char *tokens; /* --tokens */
    ranks ranks;
    const common_settings *common;
    attention_input input;
    split_rank mine;
    attn_split_machine machine;
    attn_problem problem[2];
    attn_tensors tensors[2];
    attn_distributed_plan *plan[2];
    int passes;
    int is_linear;
    linear_ranks linear;
    results results;
    attn_archive *out; /* of rank 0 */
} work;

/* ---- the steps, of which each rank does its part ---- */

/* The share that a mask drops, which the problem string names, of the rows of all ranks. */
static void sum_dropped(work *w)
{
    const int masks[] = {TENSOR(mask), TENSOR(block_mask)};
    for (int n = 0; n < 2; n++) {
        int64_t mine[2], all[2];
        share_count(&w->input, masks[n], mine);
        (void)MPI_Allreduce(mine, all, 2, MPI_INT64_T, MPI_SUM, w->ranks.all);
        share_set_dropped(&w->input, masks[n], all);
    }
}

static attn_status load(work *w, const char *path, input_settings *in, attn_error *error)
{
    const run_settings *settings = &w->given->run;
    attn_status status = wanted_check(settings, &in->common, w->is_linear, error);
    if (status == ATTN_OK) status = split_check(&w->given->split, error);
    w->mine = (split_rank){.rank = w->ranks.rank, .ranks = w->ranks.count};
    w->mine.split = split_of(&w->given->split, &in->spec);
    w->machine = machine_of(&w->given->split.machine);
    w->mine.split.machine = &w->machine;
    const char *unused = w->mine.split.way == ATTN_WAY_AUTO ? NULL : machine_given(&w->given->split.machine);
    if (status == ATTN_OK && unused)
        status = failure(error, ATTN_ERR_ARGUMENT, "--%s has no effect with --way=%s", unused, split_way_name(w->mine.split.way));
    in->choose = split_choose;
    in->choose_context = &w->mine;
    input_settings plain = *in;
    plain.spec = linear_plain_spec(&in->spec);
    if (status == ATTN_OK) status = input_load(&w->input, path, &plain, INPUT_VALUE, error);
    if (status == ATTN_OK) status = input_check_output(&w->input, settings->output, error);
    if (status == ATTN_OK) status = output_settings_check(&settings->outputs, &in->spec, error);
    if (status == ATTN_OK) status = wanted_check_format(settings, &w->input.spec, error);
    if (status == ATTN_OK && !w->is_linear) outputs_request(&settings->outputs, &w->input);
    return status;
}

/* Plans pass n, and allocates what it writes. */
static attn_status plan(work *w, int n, attn_error *error)
{
    const ranks *r = &w->ranks;
    const attn_options options = options_for_library(w->common);
    results_prepare(&w->input, &w->tensors[n]);
    attn_status status = attn_distributed_plan_create(&w->plan[n], &w->problem[n], &w->tensors[n], &w->mine.split,
                                                      &r->mpi.transport, &options, error);
    if (ranks_check(r, status, error) != ATTN_OK) return failure_about(error, w->input.path);
    return ranks_agree(r, results_add(&w->results, &w->input, &w->problem[n], &w->tensors[n], w->out, error), error);
}

static attn_status plan_all(work *w, const input_settings *in, attn_error *error)
{
    if (w->is_linear)
        return linear_ranks_plan(&w->linear, &w->input, in, w->given->run.state, &w->ranks, &w->mine.split, &w->results, w->out,
                                 error);
    const attention_input *input = &w->input;
    attn_tensors *forward = &w->tensors[0], *beyond = &w->tensors[1];
    w->passes = input->problem.op == ATTN_FORWARD ? 1 : 2;
    w->problem[0] = tensors_forward(&input->problem, &input->tensors, forward);
    if (w->passes == 1 && !input->spec.lse) forward->lse = (attn_output){0};
    attn_status status = plan(w, 0, error);
    if (status != ATTN_OK || w->passes == 1) return status;
    w->problem[1] = input->problem;
    w->problem[1].outputs = (attn_outputs){0};
    *beyond = tensors_of_op(&input->tensors, input->problem.op);
    beyond->o = forward->o;
    beyond->lse = forward->lse;
    return plan(w, 1, error);
}

static attn_status execute(work *w, attn_error *error)
{
    const ranks *r = &w->ranks;
    attn_status status = w->is_linear ? linear_ranks_run(&w->linear, r, error) : ATTN_OK;
    for (int n = 0; n < w->passes && status == ATTN_OK; n++) {
        const size_t bytes = attn_distributed_workspace_size(w->plan[n]);
        void *workspace = need_memory((int64_t)bytes, 1);
        status = attn_distributed_execute(w->plan[n], &w->tensors[n], workspace, bytes, error);
        free(workspace);
        if (ranks_check(r, status, error) != ATTN_OK) (void)failure_about(error, w->input.path);
    }
    if (status == ATTN_OK) results_sum(&w->results, &w->input);
    if (status == ATTN_OK && w->passes == 2) status = ranks_agree(r, input_rotate_back(&w->input, &w->tensors[1], error), error);
    return status;
}

/* ---- the file and the summary, of rank 0 ---- */

static attn_status finish(work *w, double seconds, attn_error *error)
{
    const run_settings *settings = &w->given->run;
    char kernel[80];
    const attn_split *split = &w->mine.split;
    attn_distributed_description about = {.struct_size = sizeof about};
    (void)attn_distributed_describe(w->plan[w->passes - 1], &about, NULL);
    const int64_t part = split->part ? split->part : 1024;
    const char *const way = split_way_name(w->is_linear ? split->way : about.way);
    const summary_fact facts[] = {{"ranks", NULL, w->ranks.count},
                                  {"part", NULL, part},
                                  {"layout", split_layout_name(split->layout), 0},
                                  {"way", way, 0},
                                  w->is_linear ? (summary_fact){"chunk", NULL, w->linear.description.chunk}
                                               : (summary_fact){"why", about.why, 0},
                                  {NULL, NULL, 0}};
    const attn_archive_tensor *const *read = w->is_linear ? w->linear.input.used : NULL;
    const run_summary done = {&w->input, w->out, read, settings->output, kernel, w->tokens, seconds, facts};
    if (w->is_linear) w->input.spec = w->linear.input.spec;
    const common_settings *common = w->common;
    const int tells = !common->quiet && !common->json && !common->prints_numbers; /* mpirun hides whether there is a terminal */
    (void)snprintf(kernel, sizeof kernel, "distributed, parts of %" PRId64 "%s", part, split->any_order ? ", in any order" : "");
    return summary_finish(&done, settings->compare, w->common, tells, error);
}

/* ---- the command ---- */

static attn_status run(const char *path, const void *own, input_settings *in, attn_error *error)
{
    attn_status status = ranks_meet(usage.name, in->common.digest, error);
    if (status != ATTN_OK) return status;
    work *w = need_memory(1, sizeof *w);
    const ranks *r = &w->ranks;
    w->given = own;
    w->common = &in->common;
    w->tokens = in->tokens;
    w->is_linear = linear_is_requested(&in->spec);
    status = ranks_open(&w->ranks, MPI_COMM_WORLD, error);
    in->common.threads = ranks_threads(r, &in->common);
    if (status == ATTN_OK) status = ranks_agree(r, load(w, path, in, error), error);
    if (status == ATTN_OK) sum_dropped(w);
    if (status == ATTN_OK && r->rank == 0) status = attn_archive_create(&w->out, error);
    status = ranks_agree(r, status, error);
    if (status == ATTN_OK) status = plan_all(w, in, error);
    const double begin = seconds_now();
    if (status == ATTN_OK) status = execute(w, error);
    if (status == ATTN_OK) {
        status = results_collect(&w->results, &w->input, r, &w->mine.split, error);
        if (r->rank == 0 && status == ATTN_OK) status = finish(w, seconds_now() - begin, error);
        status = ranks_agree(r, status, error);
    }
    attn_distributed_plan_destroy(w->plan[0]);
    attn_distributed_plan_destroy(w->plan[1]);
    attn_archive_destroy(w->out);
    linear_ranks_end(&w->linear);
    results_free(&w->results);
    input_free(&w->input);
    split_rank_free(&w->mine);
    ranks_close(&w->ranks);
    free(w);
    return status;
}

int mpi_cmd_run(int argc, char **argv)
{
    input_settings in;
    mpi_run settings = {.run.spec = &in.spec, .split.spec = &in.spec};
    const option_group groups[] = {{"Processes", split_options, &settings.split},
                                   {"Processes: what --way=auto takes them for", machine_options, &settings.split.machine},
                                   {"Output", run_options, &settings.run},
                                   {"Outputs besides o", output_options, &settings.run.outputs},
                                   {"Plan", bits_options, &in.common},
                                   {0}};
    return input_command(&usage, groups, FLAG_OUTPUT, argc, argv, &in, run, &settings);
}
