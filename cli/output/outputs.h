/* SPDX-License-Identifier: MIT
 *
 * outputs.h - the tensors that `attn run` writes: which are requested, their names and shapes. */
#ifndef ATTN_CLI_OUTPUT_OUTPUTS_H
#define ATTN_CLI_OUTPUT_OUTPUTS_H

#include "cli/base/options.h"
#include "cli/input/input.h"

/* Outputs requested by flags, besides o, lse and weights. */
typedef struct output_settings {
    int scores, row_max, entropy, effective_keys, column_sum, dropout_mask, after_dropout;
    attn_stage scores_stage;
    attn_columns column_heads;
    int64_t column_queries, topk;
} output_settings;

/* --scores --row-max --entropy --effective-keys --column-sum --column-queries --topk --dropout-mask --after-dropout; the target is
 * an output_settings. */
extern const option_row output_options[];

/* ATTN_ERR_ARGUMENT if a flag has no effect without another. */
attn_status output_settings_check(const output_settings *settings, const problem_spec *spec, attn_error *error);

/* The flag of a requested output besides o, such as "lse"; NULL if there is none. */
const char *output_beside(const output_settings *settings, const problem_spec *spec);

/* Requests them in input->problem and input->tensors; lse and weights already are. */
void outputs_request(const output_settings *settings, attention_input *input);

/* The shape in files of an output that the library has in this size: for a gradient that of its tensor; statistics of queries and
 * keys are [head, token] in both layouts.  Returns the rank. */
int output_shape(const attention_input *input, int t, const int64_t size[4], int64_t shape[ATTN_MAX_RANK]);

/* Adds to `out`, under its name in files, every tensor that the plan writes and `tensors` does not have yet, and points tensors at
 * its memory.  Outputs of the plan that were not requested (lse, for backward) are left out. */
attn_status outputs_add(attn_archive *out, const attention_input *input, const attn_plan *plan, attn_tensors *tensors,
                        attn_error *error);

#endif
