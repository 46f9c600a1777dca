/* SPDX-License-Identifier: MIT
 * wanted.c - see wanted.h. */
#include "wanted.h"

#include <string.h>

#include "testing/text/failure.h"

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

const option_row run_options[] = {
    {"output", 'o', "FILE", "output file: .safetensors, .npz, .npy; - prints it (required)",
     OUTPUT(run_settings, output, ".safetensors, .npz or .npy"), .needed = "output file (-o - prints the numbers)"},
    {"backward", 0, NULL, "write gradients too: dq, dk, dv, ...; needs do", CALL(set_operation)},
    {"jvp", 0, NULL, "write tangents too: tan_o, tan_lse; needs tan_q, ...", CALL(set_operation)},
    {"double-backward", 0, NULL, "write the gradient of the gradient: second_q, ...", CALL(set_operation)},
    {"linear", 0, NULL, "linear attention; implied by --phi and --rule", CALL(set_linear)},
    {"state", 0, NULL, "with --linear: write final_state, final_sum too", FLAG(run_settings, state)},
    {"compare", 0, NULL, "print how far the results are from those in IN", FLAG(run_settings, compare)},
    {0},
};

attn_status wanted_check(const run_settings *settings, const common_settings *common, int linear, attn_error *error)
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

attn_status wanted_check_format(const run_settings *settings, const problem_spec *spec, attn_error *error)
{
    const char *const path = settings->output;
    const char *const dot = strrchr(path, '.'), *extension = dot ? dot : "", *beside = output_beside(&settings->outputs, spec);
    const int npy = strcmp(extension, ".npy") == 0, npz = strcmp(extension, ".npz") == 0;
    if (npy && beside)
        return failure(error, ATTN_ERR_ARGUMENT, "%.120s: an .npy file holds one tensor, and --%s adds another", path, beside);
    if ((npy || npz) && spec->dtype == SPEC_BF16)
        return failure(error, ATTN_ERR_UNSUPPORTED, "%.120s: NumPy files cannot hold bf16; write .safetensors, or use --dtype",
                       path);
    return ATTN_OK;
}
