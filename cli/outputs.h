/* SPDX-License-Identifier: MIT
 *
 * outputs.h - the tensors that `attn run` writes: which are wanted, their names and shapes. */
#ifndef ATTN_CLI_OUTPUTS_H
#define ATTN_CLI_OUTPUTS_H

#include "input.h"
#include "options.h"

/* o, lse, weights, scores, row_max, entropy, effective_keys, column_sum, topk_index, topk_weight, dropout_keep */
enum { MOST_OUTPUTS = 11 };

/* What the flags ask for beside o, lse and weights. */
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

/* The flag of an output beside o that is wanted, such as "lse"; NULL where there is none. */
const char *output_beside(const output_settings *settings, const problem_spec *spec);

/* Sets input->problem.want; lse and weights are set already.  Packed outputs are [head, token, ...] too. */
void outputs_want(const output_settings *settings, attention_input *input);

/* Adds every tensor that problem->want asks for, and o, to `out`, in the layouts that the library takes for dense, with their data
 * in *args.  Shapes follow that of q; statistics of queries and keys are [head, token] in both layouts. */
attn_status outputs_add(attn_tensors *out, const attention_input *input, const attn_problem *problem, attn_args *args,
                        attn_error *error);

#endif
