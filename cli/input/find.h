/* SPDX-License-Identifier: MIT
 *
 * find.h - which tensors of which files play which role; a part of input.c. */
#ifndef ATTN_CLI_INPUT_FIND_H
#define ATTN_CLI_INPUT_FIND_H

#include "input.h"

/* The tensor of a file by its name in files or by that of its slot, the first before the second; those that are `ignored` (ended by
 * NULL) are not there.  NULL: neither is. */
const attn_archive_tensor *input_named(const attn_archive *file, const char *const *ignored, const char *name, const char *slot);

/* The names of a file's tensors, "a, b, c", cut where the text is full. */
void input_list(const attn_archive *file, char *text, size_t size);

/* Opens the files and fills input->path, file, used and single; rejects what is missing or what this version cannot use. */
attn_status input_find(attention_input *input, const char *path, const input_settings *settings, int value, attn_error *error);

#endif
