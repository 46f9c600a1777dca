/* SPDX-License-Identifier: MIT
 *
 * make.h - random tensors of a problem string, those that `attn check` draws, in the shapes that `attn run` reads. */
#ifndef ATTN_CLI_MAKE_MAKE_H
#define ATTN_CLI_MAKE_MAKE_H

#include "attn/io.h"
#include "cli/base/text_buffer.h"
#include "testing/case/case.h"

/* Adds the inputs of attention, or of linear attention, to an empty archive.  ATTN_ERR_UNSUPPORTED for what `attn run` has no
 * option for, such as pages, and for what a file cannot have. */
attn_status make_attention(attn_archive *archive, const check_case *c, attn_error *error);
attn_status make_linear(attn_archive *archive, const problem_spec *spec, attn_error *error);

/* Axes before [token, channel] in files: 2 with a batch, 1 with several heads, else 0; packed sequences have no batch. */
int make_leading(const problem_spec *spec);

/* The line of `attn run` that computes the problem over the file at `path`, which has its tensors, into "out" beside it. */
void make_line(text_buffer *text, const problem_spec *spec, const char *path);

#endif
