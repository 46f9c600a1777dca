/* SPDX-License-Identifier: MIT
 *
 * options.h - flags as tables: from a row follow how it is parsed, what is said when it is wrong, and its line in --help. */
#ifndef ATTN_CLI_BASE_OPTIONS_H
#define ATTN_CLI_BASE_OPTIONS_H

#include <stdint.h>

#include "attn/attn.h"
#include "testing/problem/problem.h"

typedef struct option_row {
    const char *name;     /* "threads" is --threads */
    char letter;          /* 'o' is -o as well; 0: none */
    const char *argument; /* "N"; NULL: none; "[=KIND]": may be left out */
    const char *help;     /* a phrase that fits beside the name; NULL: read, and not in --help */
    /* value is NULL where there was none.  A message starts with the name: `threads (-1) is not 0 or more`. */
    attn_status (*set)(void *target, const char *name, const char *value, attn_error *error);
} option_row;

/* Rows that write into one target; a row with a NULL name ends them. */
typedef struct option_group {
    const char *title; /* "Input" */
    const option_row *rows;
    void *target;
} option_group;

typedef struct command_usage {
    const char *name;     /* "run" */
    const char *synopsis; /* "IN -o OUT [options]" */
    const char *summary;  /* what it does, in lines of at most 80 letters, ends in a newline */
    const char *notes;    /* after the options: examples and files; may be NULL */
    void (*more)(void);   /* prints more help; may be NULL */
} command_usage;

typedef enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_WRONG } options_result;

/*
 * Parses argv[1] .. argv[argc-1].  Operands are moved to the end, as getopt_long does: *operands is their first index.
 *
 *  groups  [in]  ends with a group without rows
 *
 * OPTIONS_HELP: --help was asked for and has been printed: return EXIT_DONE.  OPTIONS_WRONG: error has the message.
 * At most 128 options in all.
 */
options_result options_parse(const command_usage *usage, const option_group *groups, int argc, char **argv, int *operands,
                             attn_error *error);

/* options_parse as a command begins: prints what is wrong, rejects more than `most` operands.  Returns -1 where the command goes
 * on, else its exit status. */
int options_begin(const command_usage *usage, const option_group *groups, int argc, char **argv, int most, int *operands);

/* ---- what all commands share ---- */

typedef struct common_settings {
    int threads; /* 0: what the library would use */
    attn_isa isa;
    uint64_t seed;
    int quiet;
    int json;
    int invariant, reproducible; /* of attn_options; only bits_options sets them */
} common_settings;

/* --threads --isa --seed --quiet --json; the target is a common_settings. */
extern const option_row common_options[];

/* --invariant --reproducible, for commands that plan; the target is a common_settings. */
extern const option_row bits_options[];

/* ATTN_ERR_ARGUMENT where --invariant would mean nothing: the library reads it in forward alone, and says nothing elsewhere. */
attn_status options_check_bits(const common_settings *settings, const problem_spec *spec, attn_error *error);

/* The flags of problem strings (problem_word.flag up to `most`) in a static table; the target is a problem_spec. */
const option_row *problem_options(problem_word_flag most);

/* ---- setters for the rows of a command ---- */

/* Reads a whole number within low and high. */
attn_status option_whole(const char *name, const char *value, int64_t low, int64_t high, int64_t *number, attn_error *error);

/* The library's options for these settings. */
attn_options options_for_library(const common_settings *settings);

#endif
