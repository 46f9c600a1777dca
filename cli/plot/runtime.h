/* SPDX-License-Identifier: MIT
 *
 * runtime.h - the results of `attn bench`, for the pictures of kind runtime: curves by length, or bars. */
#ifndef ATTN_CLI_PLOT_RUNTIME_H
#define ATTN_CLI_PLOT_RUNTIME_H

#include "kinds.h"

enum { RUNTIME_TEXT = 300, RUNTIME_ROWS = 512 };

typedef struct runtime_row {
    char label[RUNTIME_TEXT];                 /* the problem; with a name "flash = fwd:..." */
    char group[RUNTIME_TEXT];                 /* the label without the length */
    double n, seconds;                        /* the length; the median time */
    double extra, scores, workspace, speedup; /* bytes, and over the baseline of the file; NaN: unknown */
} runtime_row;

/* Time and workspace of each result as bars. */
void runtime_bars(plot_task *task, const runtime_row *rows, int count);

#endif
