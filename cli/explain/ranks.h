/* SPDX-License-Identifier: MIT
 *
 * ranks.h - `attn explain --ranks`: what a problem would take over many machines, by the model of attn_split_predict. */
#ifndef ATTN_CLI_EXPLAIN_RANKS_H
#define ATTN_CLI_EXPLAIN_RANKS_H

#include "cli/base/options.h"
#include "cli/input/split.h"

typedef struct ranks_settings {
    int ranks; /* 0: not given */
    split_settings split;
} ranks_settings;

extern const option_row ranks_options[];

/* ATTN_ERR_ARGUMENT: flags that have no effect without --ranks, or with it. */
attn_status ranks_check_flags(const ranks_settings *settings, const common_settings *common, attn_error *error);

/* Prints the table, or the JSON object, with the name of the problem. */
attn_status ranks_explain(const char *name, const problem_spec *spec, const ranks_settings *settings, int json, attn_error *error);

/* ---- shared with ways.c ---- */

/* A way of exchange; those that the library does not have are only compared. */
typedef struct way_row {
    const char *name;
    const char *what; /* for those that are not there yet */
    int in_library;
    attn_split_prediction of;
} way_row;

enum { MOST_WAYS = 12 };

/* Adds the ways of other libraries that the problem could be computed by, with even work and without parts; returns how many. */
int ways_elsewhere(const attn_problem *problem, attn_dtype dtype, int ranks, const attn_split_machine *machine, double flops,
                   way_row *rows);

#endif
