/* SPDX-License-Identifier: MIT
 *
 * source.h - the files that a picture is made from: what `attn` wrote as tensors, as JSON or as .csv.  Every message names the file
 * and what is missing or wrong in it; values that are not numbers are rejected. */
#ifndef ATTN_CLI_PLOT_SOURCE_H
#define ATTN_CLI_PLOT_SOURCE_H

#include <cjson/cJSON.h>
#include <stdint.h>

#include "attn/io.h"
#include "cli/input/input.h"
#include "cli/input/labels.h"

/* One file: tensors or JSON, never both.  A .csv is JSON with one object for each row under "results". */
typedef struct source {
    const char *path;
    attn_archive *tensors;
    cJSON *json;
    char *bytes; /* of a pipe */
} source;

/* path may be a pipe.  ATTN_ERR_FORMAT if it is neither tensors nor JSON.  Release with source_close, also after a failure. */
attn_status source_open(source *s, const char *path, attn_error *error);
void source_close(source *s);

/* Finds a tensor of this name; the error names those that there are and the command that writes it ("attn run --weights"). */
attn_status source_find(const source *s, const char *name, const char *command, const attn_archive_tensor **tensor,
                        attn_error *error);

/* Numbers first .. first+count-1 of a tensor as double.  NaN is rejected with its index; infinities too, except -infinity if
 * `masked` is 1. */
attn_status source_numbers(const source *s, const attn_archive_tensor *tensor, int64_t first, int64_t count, int masked,
                           double *numbers, attn_error *error);

/* A number of a JSON object by a path such as "seconds.median" (of a .csv: the column seconds_median); `where` names the object in
 * messages. */
attn_status source_number(const source *s, const cJSON *object, const char *name, const char *where, double *number,
                          attn_error *error);

/* ---- matrices of a file ---- */

/* A tensor [..., head, query, key], or [..., head, query] with rows only, with what its axes mean. */
typedef struct stack {
    const source *source;
    const attn_archive_tensor *tensor;
    attention_input input; /* tells labels what the axes are */
    attn_archive_tensor axes;
    labels labels;
    int64_t heads, rows, columns;
} stack;

/* `last` is how many axes a head has: 2, or 1 if a row is one number.  Release with stack_close, also after a failure. */
attn_status stack_open(stack *s, const source *from, const char *name, const char *command, int last, attn_error *error);
void stack_close(stack *s);

/* One head: [rows][columns], in memory from need_memory. */
attn_status stack_read(const stack *s, int64_t layer, int64_t entry, int64_t head, int masked, double **numbers, attn_error *error);

/* Tokens of the rows and of the columns, or NULL if there are none; free both with free. */
const char **stack_row_names(const stack *s, int64_t entry);
const char **stack_column_names(const stack *s, int64_t entry);

#endif
