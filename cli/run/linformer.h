/* SPDX-License-Identifier: MIT
 *
 * linformer.h - `attn run --linformer`: attention over keys and values that are projected along the tokens, and its gradients. */
#ifndef ATTN_CLI_RUN_LINFORMER_H
#define ATTN_CLI_RUN_LINFORMER_H

#include "attn/linear.h"
#include "cli/input/input.h"

typedef struct linformer_settings {
    int given;
} linformer_settings;

/* --linformer; the target is a linformer_settings. */
extern const option_row linformer_options[];

typedef struct linformer_work {
    int given; /* 0: nothing below is used */
    const attn_options *options;
    int64_t rank, tokens;                 /* projected keys, and keys */
    const attn_archive_tensor *matrix[2]; /* of keys and of values: [token, rank] or [head, token, rank] */
    attn_input plain[2];                  /* k and v of the file */
    void *projected[2], *converted[2];    /* converted: the matrices in the compute type */
} linformer_work;

/* Replaces k and v of the input, and their number, by the projected ones.  The options are borrowed. */
attn_status linformer_begin(linformer_work *work, attention_input *input, const attn_options *options, attn_error *error);

/* With --backward: dk and dv of the file, which are those of the projected ones until here, and the gradients of the matrices. */
attn_status linformer_backward(const linformer_work *work, const attention_input *input, const attn_tensors *gradients,
                               attn_archive *out, attn_error *error);

void linformer_end(linformer_work *work);

#endif
