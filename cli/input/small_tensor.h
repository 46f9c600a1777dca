/* SPDX-License-Identifier: MIT
 *
 * small_tensor.h - tensors of files as numbers of f64, for commands whose tensors are small and have no roles in attention. */
#ifndef ATTN_CLI_INPUT_SMALL_TENSOR_H
#define ATTN_CLI_INPUT_SMALL_TENSOR_H

#include "attn/io.h"
#include "cli/base/options.h"
#include "testing/text/json.h"

/* The tensor of this name; the error lists those that there are. */
attn_status small_tensor_find(const attn_archive *file, const char *name, const attn_archive_tensor **t, attn_error *error);

/* The same for a tensor of this shape, in which -1 is any size of at least 1; `axes` is the shape in words: "[row, channel]".  A
 * NaN or an infinity is an error. */
attn_status small_tensor_find_shape(const attn_archive *file, const char *name, int rank, const int64_t *shape, const char *axes,
                                    const attn_archive_tensor **t, attn_error *error);

/* Elements of a tensor; all of them as f64, in memory from need_memory. */
int64_t small_tensor_count(const attn_archive_tensor *t);
double *small_tensor_read(const attn_archive_tensor *t);

/* Adds a tensor of f64, or of f32, f16 or bf16 to which its numbers are rounded once. */
attn_status small_tensor_add(attn_archive *out, const char *name, attn_dtype dtype, int rank, const int64_t *shape,
                             const double *numbers, attn_error *error);

/* Adds each tensor of an archive to a list of JSON: {name, shape, numbers}, without the numbers if there are many. */
enum { SMALL_TENSOR_NUMBERS = 256 };
void small_tensor_json(const attn_archive *archive, cJSON *list);

/* Prints the tensors of an archive as `attn show` does, unless -o - has printed them, or they are in a file and --quiet is given.
 */
void small_tensor_print(const attn_archive *archive, const common_settings *common, const char *output);

/* On a terminal and without --quiet, prints that the file was written; nothing if it is NULL. */
void small_tensor_tell(const common_settings *common, const char *output);

#endif
