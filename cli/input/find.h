/* SPDX-License-Identifier: MIT
 *
 * find.h - which tensors of which files play which role; a part of input.c. */
#ifndef ATTN_CLI_INPUT_FIND_H
#define ATTN_CLI_INPUT_FIND_H

#include "input.h"

/* The tensor of a file by its name in files, else by that of its slot; names in `ignored` (NULL-terminated) are skipped.  NULL if
 * there is none. */
const attn_archive_tensor *input_named(const attn_archive *file, const char *const *ignored, const char *name, const char *slot);

/* Fails if the file, which may be NULL, has a tensor of this name that the command has no option for and that is not ignored. */
attn_status input_refuse(const attn_archive *file, const char *const *ignored, const char *name, attn_error *error);

/* The names of a file's tensors, "a, b, c", cut to `size`. */
void input_list(const attn_archive *file, char *text, size_t size);

/* Opens the files and fills input->path, file, used and single; rejects missing tensors and those that this version cannot use. */
attn_status input_find(attention_input *input, const char *path, const input_settings *settings, int value, attn_error *error);

#endif
