/* SPDX-License-Identifier: MIT
 *
 * needed.h - the flags without which the weights of a file's q and k are other ones: metadata `attn_flags`, "--causal --scale=1".
 */
#ifndef ATTN_CLI_INPUT_NEEDED_H
#define ATTN_CLI_INPUT_NEEDED_H

#include "input.h"

/* Writes the flags of a mechanism that go with q and k in `out`; without any, no metadata. */
attn_status needed_write(attn_archive *out, const problem_spec *spec, attn_error *error);

/* Warns (command_warn) of flags that the file of an input names and that were not given. */
void needed_warn(const attention_input *input);

#endif
