/* SPDX-License-Identifier: MIT
 *
 * summary.h - what `run` says about its work: the metadata of the output, the summary, and how far results are from others. */
#ifndef ATTN_CLI_OUTPUT_SUMMARY_H
#define ATTN_CLI_OUTPUT_SUMMARY_H

#include "cli/input/difference.h"
#include "cli/input/input.h"

/* A further fact: a text, or else a number. */
typedef struct summary_fact {
    const char *name, *text;
    int64_t number;
} summary_fact;

/* What a run did. */
typedef struct run_summary {
    const attention_input *input;
    const attn_archive *out;
    const attn_archive_tensor *const *linear; /* [LINEARS]: those that linear attention alone reads; NULL: none */
    const char *output, *problem, *kernel;
    double seconds;
    const summary_fact *facts; /* after the kernel; a NULL name ends them.  NULL: none */
    difference differences[TENSORS];
    int differences_count;
} run_summary;

/* The metadata of the input, and the version, the problem and the kernel. */
attn_status summary_add_metadata(attn_archive *out, const attention_input *input, const char *kernel, const char *problem,
                                 attn_error *error);

/* --compare: finds the differences. */
attn_status summary_compare(run_summary *done, attn_error *error);

/* The object of --json, as text (json_compose). */
char *summary_json(const run_summary *done);
/* The same for a terminal. */
void summary_print(const run_summary *done);
/* The result of --compare, printed to pipes too. */
void summary_print_differences(const run_summary *done);

#endif
