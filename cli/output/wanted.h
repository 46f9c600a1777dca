/* SPDX-License-Identifier: MIT
 *
 * wanted.h - what `run` is to write and where: its flags, and what they cannot be combined with. */
#ifndef ATTN_CLI_OUTPUT_WANTED_H
#define ATTN_CLI_OUTPUT_WANTED_H

#include "outputs.h"

typedef struct run_settings {
    const char *output;
    int compare, state;
    output_settings outputs;
    problem_spec *spec;
} run_settings;

/* --output --backward --jvp --double-backward --linear --state --compare; the target is a run_settings. */
extern const option_row run_options[];

/* Rejects flags that the kind of attention (softmax or linear) or the operation does not have. */
attn_status wanted_check(const run_settings *settings, const common_settings *common, int linear, attn_error *error);

/* Rejects what the format of the output cannot hold, before the work, not after it.  The spec is that of the flags and the
 * tensors. */
attn_status wanted_check_format(const run_settings *settings, const problem_spec *spec, attn_error *error);

#endif
