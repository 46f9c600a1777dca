/* SPDX-License-Identifier: MIT
 *
 * input_find.h - which tensors of which files play which role; a part of input.c. */
#ifndef ATTN_CLI_INPUT_FIND_H
#define ATTN_CLI_INPUT_FIND_H

#include "input.h"

/* Opens the files and fills input->path, file, used and single; refuses what is missing or what this version cannot use. */
attn_status input_find(attention_input *input, const char *path, const input_settings *settings, int value, attn_error *error);

#endif
