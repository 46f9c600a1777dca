/* SPDX-License-Identifier: MIT
 *
 * run_linear.h - what `attn run --phi` does: linear attention over the tensors of a file. */
#ifndef ATTN_CLI_RUN_LINEAR_H
#define ATTN_CLI_RUN_LINEAR_H

#include "input.h"

/*
 * Computes o, and weights where args->weights is there, in the forms that outputs_add gave them.  input->spec.phi is the feature
 * map; causal, scale and seed are the only options that linear attention has.  Weights are the outputs for the identity as values:
 * f(q_i).f(k_j) over the denominator.  kernel gets the kernel's name.
 */
attn_status run_linear(const attention_input *input, const attn_args *args, const common_settings *common, char *kernel,
                       size_t size, attn_error *error);

#endif
