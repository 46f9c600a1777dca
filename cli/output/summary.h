/* SPDX-License-Identifier: MIT
 *
 * summary.h - the end of `run`: the metadata of the output, the file, the summary, and how far results are from others. */
#ifndef ATTN_CLI_OUTPUT_SUMMARY_H
#define ATTN_CLI_OUTPUT_SUMMARY_H

#include "cli/input/input.h"

/* A further fact: a text, or else a number. */
typedef struct summary_fact {
    const char *name, *text;
    int64_t number;
} summary_fact;

/* What a run did. */
typedef struct run_summary {
    const attention_input *input;
    attn_archive *out;                        /* its results */
    const attn_archive_tensor *const *linear; /* [LINEARS]: those that linear attention alone reads; NULL: none */
    const char *output, *kernel, *tokens;     /* the file of --tokens, or NULL */
    double seconds;
    const summary_fact *facts; /* after the kernel; a NULL name ends them.  NULL: none */
} run_summary;

/*
 * The end of a run: adds the metadata of the input, its tokens, the version, the problem and the kernel, writes the file, and
 * prints what
 * --json asks for; or, with `tells`, a list of the tensors and the facts.  compare: how far the results are from tensors of the
 * input with the same names, printed to pipes too; ATTN_ERR_ARGUMENT if there are none.
 */
attn_status summary_finish(const run_summary *done, int compare, const common_settings *common, int tells, attn_error *error);

#endif
