/* SPDX-License-Identifier: MIT
 *
 * options.h - the command line.
 */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "attn/types.h"
#include "sample.h"

typedef struct options {
    const char *path;
    char **prompts;
    int prompt_count;
    const char *system; /* NULL: the model's own */
    int raw, ids, quiet, hadamard;
    int64_t most, batch, chunk, page, drafts, threads;
    attn_dtype cache, values;
    sampling sampling;
} options;

/* 1; 0 if the program should exit with *status: after --help, or a message about what is wrong. */
int options_read(options *o, int argc, char **argv, int *status);

#endif
