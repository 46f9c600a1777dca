/* SPDX-License-Identifier: MIT
 *
 * tensor_file.h - opens what a command reads tensors from: .safetensors, .npz, .npy, .gguf, and in text .csv (or .tsv, .txt) and
 * .json; "-" is standard input.
 *
 * A CSV file, or a list in JSON, is one tensor with the file's name without folder and extension.  An object in JSON has a member
 * for each tensor, {"q": [[1, 0], [0, 1]]}; members that are texts, objects or lists of texts are metadata, such as "tokens".
 * Numbers in text become bool in masks, i64 in lengths, positions and beginnings, and else f32, or f64 on request. */
#ifndef ATTN_CLI_BASE_TENSOR_FILE_H
#define ATTN_CLI_BASE_TENSOR_FILE_H

#include "attn/io.h"

/* How to read text. */
typedef struct tensor_text {
    const char *name; /* of the tensor of a CSV file or a list, whose type it decides; NULL: that of the file, "stdin" */
    attn_dtype real;  /* ATTN_F32 or ATTN_F64 */
    int in_rows;      /* [out] 1: it was rows, as of a CSV file: a single one has rank 1 */
} tensor_text;

/* Standard input can be opened once.  how may be NULL: f32, named after the file. */
attn_status tensor_file_open(attn_archive **archive, const char *path, tensor_text *how, attn_error *error);

/* The same for a text in memory, which messages name `subject`; how->name is needed. */
attn_status tensor_text_read(attn_archive **archive, const char *subject, const char *text, tensor_text *how, attn_error *error);

/* The type that numbers in text have in a tensor of this name. */
attn_dtype tensor_text_dtype(const char *name, attn_dtype real);

/* 1 if the name ends as that of a file of text: .csv, .tsv, .txt or .json. */
int is_text_name(const char *path);

#endif
