/* SPDX-License-Identifier: MIT
 *
 * run.c - `attn run`: attention over the tensors of a file, into a file. */
#include <stdio.h>

#include "backward.h"
#include "cli/base/commands.h"
#include "cli/base/progress.h"
#include "cli/output/summary.h"
#include "cli/output/wanted.h"
#include "linear.h"
#include "linformer.h"
#include "testing/text/failure.h"

static const command_usage usage = {
    .name = "run",
    .synopsis = "IN -o OUT [options]",
    .summary = "Computes attention over the tensors q, k and v of IN (.safetensors, .npz, .gguf) or of\n"
               ".npy files, and writes o to OUT. Tensors are [token, channel], [head, token, channel] or\n"
               "[batch, head, token, channel]; axes before these count as batch.\n",
    .notes = "A tensor of IN that is named after a role (mask, bias, lengths_kv, ...) is used unless\n"
             "--ignore leaves it out. The library's own names work too: grad_o for do, alibi_slopes\n"
             "for slopes, offset_q for offset, score_matrix for w, block_mask for blocks,\n"
             "dropout_given for dropout_keep; so does lengths for lengths_kv. What the library takes\n"
             "and no option names (page_table, ranges, tree, ...) must be left out by --ignore. OUT\n"
             "receives the metadata of IN and appears whole or not at all.\n"
             "With --backward, OUT also has dq, dk and dv, and the gradients of bias, slopes, sink and\n"
             "scale if these tensors are used; o and lse are always recomputed. With --jvp, it has\n"
             "tan_o and tan_lse along the tangents tan_q, tan_k, tan_v and tan_bias that IN has; with\n"
             "--double-backward, second_do, second_dlse, second_q, second_k, second_v and second_bias,\n"
             "with the same tangents as the gradients that flow into dq, dk, dv and dbias.\n"
             "--linear, --phi or --rule selects linear attention, which writes o and, with --weights,\n"
             "the weight of each value. It also reads decay (its log, for each token, or each token\n"
             "and feature), beta (with --rule=delta), erase and write (--rule=low-rank), omega,\n"
             "initial_state and initial_sum, and with --backward dfinal_state and dfinal_sum;\n"
             "omega is drawn from --seed if IN has none.\n"
             "--linformer reads projection_k and projection_v, or projection for both: [token, rank] or\n"
             "[head, token, rank]; with --backward it writes their gradients too.\n"
             "On a terminal, run prints which tensors it used and wrote, the problem and its kernel and\n"
             "time; into a pipe or a file it prints nothing (--json prints the same anywhere).\n"
             "\n"
             "Examples:\n"
             "  attn run layer.safetensors -o out.safetensors --causal --lse\n"
             "  attn run --q='1 0; 0 1' --k='1 0; 0 1' --v='1 2; 3 4' --weights -o -\n"
             "  attn run -o o.npy --query=q.npy --key=k.npy --value=v.npy --window=256,0\n"
             "  attn run layer.safetensors -o out.safetensors --linear --phi=favor/256 --causal\n",
    .operands = {"input file"},
    .example = "attn run IN.safetensors -o OUT.safetensors",
};

typedef struct all_settings {
    run_settings run;
    linformer_settings linformer;
} all_settings;

static attn_status run(const char *path, const void *own, input_settings *in, attn_error *error)
{
    const all_settings *all = own;
    const run_settings *settings = &all->run;
    const common_settings *common = &in->common;
    attention_input input;
    computation work = {0};
    backward_work gradients = {0};
    attn_archive *out = NULL;
    char kernels[200] = "";
    linear_work walk = {0};
    linformer_work projected = {0};
    const attn_options options = options_for_library(common);
    input_settings plain = *in;
    const int linear = linear_is_requested(&in->spec), beyond = in->spec.op != SPEC_FORWARD && !linear;
    plain.spec = linear_plain_spec(&in->spec);
    attn_status status = wanted_check(settings, common, linear, error);
    if (status != ATTN_OK) return status;
    status = input_load(&input, path, &plain, INPUT_VALUE, error);
    if (status == ATTN_OK) status = input_check_output(&input, settings->output, error);
    if (status == ATTN_OK) status = output_settings_check(&settings->outputs, &in->spec, error);
    if (status == ATTN_OK) status = wanted_check_format(settings, &input.spec, error);
    if (status == ATTN_OK && all->linformer.given) status = linformer_begin(&projected, &input, &options, error);
    if (status == ATTN_OK && !linear) outputs_request(&settings->outputs, &input);
    attn_tensors tensors;
    const attn_problem forward = tensors_forward(&input.problem, &input.tensors, &tensors);
    if (!beyond && !input.spec.lse) tensors.lse = (attn_output){0};
    if (status == ATTN_OK && !linear) {
        status = computation_begin(&work, &forward, &tensors, common, error);
        if (status != ATTN_OK) failure_about(error, input.path);
    }
    if (status == ATTN_OK) status = attn_archive_create(&out, error);
    if (status == ATTN_OK && linear) {
        status = linear_work_begin(&walk, &input, in, settings->state, out, common, error);
        if (status == ATTN_OK) input.spec = walk.input.spec;
        else failure_about(error, input.path);
    }
    if (status == ATTN_OK && !linear) status = outputs_add(out, &input, work.plan, &tensors, error);
    if (status == ATTN_OK && beyond) {
        status = backward_begin(&gradients, &input, out, &tensors, common, error);
        if (status != ATTN_OK) failure_about(error, input.path);
    }

    double begin = seconds_now();
    if (status == ATTN_OK) {
        status =
            linear ? linear_work_run(&walk, common, error) : compute_all(&work, &forward, &tensors, common, "attention", error);
        if (status == ATTN_OK && beyond) status = backward_run(&gradients, common, error);
        if (status == ATTN_OK && beyond && projected.given)
            status = linformer_backward(&projected, &input, &gradients.tensors, out, error);
        if (status != ATTN_OK) failure_about(error, input.path);
    }
    if (status == ATTN_OK) {
        snprintf(kernels, sizeof kernels, "%s%s%s", linear ? walk.description.kernel : work.description.kernel, beyond ? ", " : "",
                 beyond ? gradients.computation.description.kernel : "");
        const run_summary done = {&input, out, walk.input.used, settings->output, kernels, in->tokens, seconds_now() - begin, NULL};
        status = summary_finish(&done, settings->compare, common, options_tell(common), error);
    }
    attn_archive_destroy(out);
    linear_work_end(&walk);
    computation_end(&work);
    backward_end(&gradients);
    linformer_end(&projected);
    input_free(&input);
    return status;
}

int attn_cmd_run(int argc, char **argv)
{
    input_settings in;
    all_settings settings = {.run = {.spec = &in.spec}};
    const option_group groups[] = {{"Output", run_options, &settings.run},
                                   {"Outputs besides o", output_options, &settings.run.outputs},
                                   {"Linformer", linformer_options, &settings.linformer},
                                   {"Plan", bits_options, &in.common},
                                   {0}};
    return input_command(&usage, groups, FLAG_OUTPUT, argc, argv, &in, run, &settings);
}
