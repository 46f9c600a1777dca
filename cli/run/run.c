/* SPDX-License-Identifier: MIT
 *
 * run.c - `attn run`: attention over the tensors of a file, into a file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backward.h"
#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "cli/base/progress.h"
#include "cli/compute/compute.h"
#include "cli/input/difference.h"
#include "cli/input/input.h"
#include "cli/input/listed.h"
#include "linear.h"
#include "outputs.h"
#include "testing/problem/linear_tensors.h"
#include "testing/text/failure.h"
#include "testing/text/shown.h"

static const command_usage usage = {
    .name = "run",
    .synopsis = "IN -o OUT [options]",
    .summary = "Computes attention over the tensors q, k and v of IN (.safetensors, .npz) or of .npy\n"
               "files, and writes o to OUT. Tensors are [token, channel], [head, token, channel] or\n"
               "[batch, head, token, channel]; axes before these count as batch.\n",
    .notes = "A tensor of IN that is named after a role (mask, bias, lengths_kv, ...) is used unless\n"
             "--ignore leaves it out. The library's own names work too: grad_o for do, alibi_slopes\n"
             "for slopes, offset_q for offset, score_matrix for w, block_mask for blocks,\n"
             "dropout_given for dropout_keep; so does lengths for lengths_kv. OUT receives the\n"
             "metadata of IN and appears whole or not at all.\n"
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
             "\n"
             "Examples:\n"
             "  attn run layer.safetensors -o out.safetensors --causal --lse\n"
             "  attn run -o o.npy --query=q.npy --key=k.npy --value=v.npy --window=256,0\n"
             "  attn run layer.safetensors -o out.safetensors --linear --phi=favor/256 --causal\n",
    .operands = {"input file"},
    .example = "attn run IN.safetensors -o OUT.safetensors",
};

typedef struct run_settings {
    const char *output;
    int compare, state;
    output_settings outputs;
    problem_spec *spec;
} run_settings;

static attn_status set_operation(void *target, const char *name, const char *value, attn_error *error)
{
    problem_spec *spec = ((run_settings *)target)->spec;
    const int op = strcmp(name, "backward") == 0 ? SPEC_BACKWARD : strcmp(name, "jvp") == 0 ? SPEC_JVP : SPEC_DOUBLE_BACKWARD;
    (void)value;
    if (spec->op != SPEC_FORWARD && spec->op != op)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: only one of --backward, --jvp and --double-backward at a time", name);
    spec->op = op;
    return ATTN_OK;
}

static attn_status set_linear(void *target, const char *name, const char *value, attn_error *error)
{
    (void)name, (void)value, (void)error;
    ((run_settings *)target)->spec->linear = 1;
    return ATTN_OK;
}

static const option_row run_options[] = {
    {"output", 'o', "FILE", "output file: .safetensors, .npz or .npy (required)",
     OUTPUT(run_settings, output, ".safetensors, .npz or .npy"), .needed = "output file"},
    {"backward", 0, NULL, "write gradients too: dq, dk, dv, ...; needs do", CALL(set_operation)},
    {"jvp", 0, NULL, "write tangents too: tan_o, tan_lse; needs tan_q, ...", CALL(set_operation)},
    {"double-backward", 0, NULL, "write the gradient of the gradient: second_q, ...", CALL(set_operation)},
    {"linear", 0, NULL, "linear attention; implied by --phi and --rule", CALL(set_linear)},
    {"state", 0, NULL, "with --linear: write final_state, final_sum too", FLAG(run_settings, state)},
    {"compare", 0, NULL, "print how far the results are from those in IN", FLAG(run_settings, compare)},
    {0},
};

/* ---- outputs ---- */

/* Rejects what the format cannot hold, before the work, not after it. */
static attn_status check_output(const char *path, const output_settings *outputs, const problem_spec *spec, attn_error *error)
{
    const char *const extension = strrchr(path, '.'), *beside = output_beside(outputs, spec);
    const int npy = strcmp(extension, ".npy") == 0, npz = strcmp(extension, ".npz") == 0;
    if (npy && beside)
        return failure(error, ATTN_ERR_ARGUMENT, "%.120s: an .npy file holds one tensor, and --%s adds another", path, beside);
    if ((npy || npz) && spec->dtype == SPEC_BF16)
        return failure(error, ATTN_ERR_UNSUPPORTED, "%.120s: NumPy files cannot hold bf16; write .safetensors, or use --dtype",
                       path);
    return ATTN_OK;
}

static attn_status add_metadata(attn_archive *out, const attention_input *input, const char *kernel, const char *problem,
                                attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int64_t k = 0; input->file && k < attn_archive_metadata_count(input->file) && status == ATTN_OK; k++) {
        const attn_metadata *entry = attn_archive_metadata_at(input->file, k);
        status = attn_archive_set_metadata(out, entry->key, entry->value, error);
    }
    if (status == ATTN_OK) status = attn_archive_set_metadata(out, "attn_version", attn_version(), error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(out, "attn_problem", problem, error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(out, "attn_kernel", kernel, error);
    return status;
}

/* ---- the summary ---- */

/* What the run did, for its summary. */
typedef struct run_report {
    const attention_input *input;
    const attn_archive *out;
    const linear_work *linear;
    const char *output, *problem, *kernel;
    double seconds;
    difference differences[TENSORS];
    int differences_count;
} run_report;

static int is_used(const void *report, const attn_archive_tensor *tensor)
{
    const run_report *r = report;
    for (int role = 0; role < ROLES; role++)
        if (r->input->used[role].tensor == tensor) return 1;
    return linear_work_uses(r->linear, tensor);
}

static char *compose_json(const run_report *report)
{
    const attention_input *input = report->input;
    cJSON *object = json_begin();
    json_text(object, "input", input->path);
    json_text(object, "output", report->output);
    cJSON *used = json_list(object, "used");
    for (int r = 0; r < ROLES; r++)
        if (input->used[r].tensor) listed_json(used, role_name(r), input->used[r].tensor);
    for (int t = 0; t < LINEARS; t++)
        if (report->linear->used[t]) listed_json(used, linear_file_name(t), report->linear->used[t]);
    listed_unused_json(json_list(object, "unused"), input->file, is_used, report);
    cJSON *written = json_list(object, "written");
    for (int64_t k = 0; k < attn_archive_count(report->out); k++) listed_json(written, NULL, attn_archive_at(report->out, k));
    json_text(object, "version", attn_version());
    json_text(object, "problem", report->problem);
    json_text(object, "kernel", report->kernel);
    json_number(object, "seconds", report->seconds);
    cJSON *differences = report->differences_count ? json_list(object, "differences") : NULL;
    for (int d = 0; d < report->differences_count; d++) {
        cJSON *item = json_item(differences);
        json_text(item, "name", report->differences[d].name);
        json_number(item, "largest", report->differences[d].largest);
    }
    return json_compose(object);
}

static void print_text(const run_report *report)
{
    const attention_input *input = report->input;
    for (int r = 0; r < ROLES; r++)
        if (input->used[r].tensor) listed_print("used", role_name(r), input->used[r].tensor, input->used[r].path);
    for (int t = 0; t < LINEARS; t++)
        if (report->linear->used[t]) listed_print("used", linear_file_name(t), report->linear->used[t], input->path);
    listed_unused_print(input->file, is_used, report);
    printf("problem %s\nkernel  %s, %.3g ms\n", report->problem, report->kernel, 1e3 * report->seconds);
    for (int64_t k = 0; k < attn_archive_count(report->out); k++)
        listed_print("wrote", NULL, attn_archive_at(report->out, k), report->output);
}

/* The result of --compare, printed to pipes too. */
static void print_differences(const run_report *report)
{
    for (int d = 0; d < report->differences_count; d++) {
        const difference *one = &report->differences[d];
        char index[SHAPE_TEXT];
        int rank = attn_archive_find(report->out, one->name)->rank;
        printf("compare %-11s largest difference %.2g at %s\n", one->name, one->largest, shape_text(index, rank, one->index));
    }
}

/* ---- the command ---- */

static attn_status compare(run_report *report, attn_error *error)
{
    const attention_input *input = report->input;
    if (!input->file)
        return failure(error, ATTN_ERR_ARGUMENT, "--compare needs an input file that has the tensors to compare with");
    attn_status status = differences_find(report->out, input->file, report->differences, &report->differences_count, error);
    if (status != ATTN_OK) failure_about(error, input->path);
    return status;
}

/* Rejects flags that the kind of attention (softmax or linear) or the operation does not have. */
static attn_status check_flags(const run_settings *settings, const common_settings *common, int linear, attn_error *error)
{
    const char *beside = linear ? output_beside(&settings->outputs, settings->spec) : NULL;
    const int op = settings->spec->op;
    problem_spec done = *settings->spec;
    if (linear && op != SPEC_FORWARD && op != SPEC_BACKWARD)
        return failure(error, ATTN_ERR_UNSUPPORTED, "linear attention has forward and --backward only");
    const char *of_linear = settings->state     ? "state"
                            : done.denominator  ? "denominator"
                            : done.epsilon != 0 ? "epsilon"
                            : done.form         ? "form"
                                                : NULL;
    if (of_linear && !linear) return failure(error, ATTN_ERR_ARGUMENT, "--%s needs --linear (or --phi, --rule)", of_linear);
    if (beside && strcmp(beside, "weights") != 0 && strcmp(beside, "backward") != 0)
        return failure(error, ATTN_ERR_UNSUPPORTED, "linear attention writes o and weights, not --%s", beside);
    if (linear) done.op = op == SPEC_BACKWARD ? SPEC_LINEAR_BACKWARD : SPEC_LINEAR;
    return options_check_bits(common, &done, error);
}

static attn_status run(const char *path, const void *own, input_settings *in, attn_error *error)
{
    const run_settings *settings = own;
    const common_settings *common = &in->common;
    attention_input input;
    computation work = {0};
    backward_work gradients = {0};
    attn_archive *out = NULL;
    char problem[512], kernels[200] = "";
    linear_work walk = {0};
    input_settings plain = *in;
    const int linear = linear_is_requested(&in->spec), beyond = in->spec.op != SPEC_FORWARD && !linear;
    plain.spec = linear_input_spec(&in->spec);
    attn_status status = check_flags(settings, common, linear, error);
    if (status != ATTN_OK) return status;
    status = input_load(&input, path, &plain, INPUT_VALUE, error);
    if (status == ATTN_OK) status = input_check_output(&input, settings->output, error);
    if (status == ATTN_OK) status = output_settings_check(&settings->outputs, &in->spec, error);
    if (status == ATTN_OK) status = check_output(settings->output, &settings->outputs, &input.spec, error);
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
        if (status == ATTN_OK) input.spec = walk.spec;
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
        if (status != ATTN_OK) failure_about(error, input.path);
    }
    run_report report = {&input, out, &walk, settings->output, problem, kernels, seconds_now() - begin, {{0}}, 0};
    if (status == ATTN_OK && settings->compare) status = compare(&report, error);
    problem_print(&input.spec, problem, sizeof problem);
    if (status == ATTN_OK)
        snprintf(kernels, sizeof kernels, "%s%s%s", linear ? walk.description.kernel : work.description.kernel, beyond ? ", " : "",
                 beyond ? gradients.computation.description.kernel : "");
    if (status == ATTN_OK) status = add_metadata(out, &input, report.kernel, problem, error);
    char *json = status == ATTN_OK && common->json ? compose_json(&report) : NULL;
    status = file_finish(status, out, settings->output, json, error);
    if (status == ATTN_OK && options_tell(common)) print_text(&report);
    if (status == ATTN_OK && !common->json) print_differences(&report);
    attn_archive_destroy(out);
    linear_work_end(&walk);
    computation_end(&work);
    backward_end(&gradients);
    input_free(&input);
    return status;
}

int attn_cmd_run(int argc, char **argv)
{
    input_settings in;
    run_settings settings = {.spec = &in.spec};
    const option_group groups[] = {{"Output", run_options, &settings},
                                   {"Outputs besides o", output_options, &settings.outputs},
                                   {"Plan", bits_options, &in.common},
                                   {0}};
    return input_command(&usage, groups, FLAG_OUTPUT, argc, argv, &in, run, &settings);
}
