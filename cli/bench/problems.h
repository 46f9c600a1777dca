/* SPDX-License-Identifier: MIT
 *
 * problems.h - the problems of a run: names with the sizes of flags, strings with sweeps, lines of a file. */
#ifndef ATTN_CLI_BENCH_PROBLEMS_H
#define ATTN_CLI_BENCH_PROBLEMS_H

#include "operand.h"

enum { MAX_PROBLEMS = 1000, MAX_SIZES = 32 };

/* What names get; batch and tokens are lists. */
typedef struct name_sizes {
    int64_t batch[MAX_SIZES], tokens[MAX_SIZES];
    int batches, lengths;
    int64_t width, heads;
    int causal;
    const char *given; /* the last of these flags that was given; NULL: none */
} name_sizes;

typedef struct problem_entry {
    char *name; /* of the registry, as it was given; NULL: a string */
    char *text;
    char *from; /* "FILE:LINE"; NULL: from the command line */
    operand operand;
    int word, place; /* which word it comes from, and which of the problems that this stands for it is */
} problem_entry;

typedef struct problem_list {
    problem_entry *entry;
    int count, capacity;
    int words;
    int names; /* how many of them are of the registry */
} problem_list;

/* Adds one word: a name, once for each batch and length, or a string, once for each combination of its sweeps: of a size
 * (sq256,512) or of words that are a value (fwd,bwd; f32,bf16), not of an option after =.  file: NULL for the command line.  Parses
 * nothing. */
attn_status problems_add(problem_list *list, const char *word, const name_sizes *sizes, const char *file, int line,
                         attn_error *error);
/* The lines of a file. */
attn_status problems_read(problem_list *list, const char *path, const name_sizes *sizes, attn_error *error);
void problems_free(problem_list *list);

/* Which problem each is compared with: of this name, number (from 1) or string, NULL for the first.  If there are several words
 * that stand for as many problems each (names by length), and it is not a number, that of the same place in its word. */
attn_status problems_compare(const problem_list *list, const char *with, int *index, attn_error *error);

#endif
