/* SPDX-License-Identifier: MIT
 *
 * options.h - flags as tables: a row defines how a flag is parsed, its error messages, and its line in --help. */
#ifndef ATTN_CLI_BASE_OPTIONS_H
#define ATTN_CLI_BASE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

#include "attn/attn.h"
#include "testing/problem/problem.h"

/* What becomes of a value: a function receives it, or it is stored in a field of the target. */
typedef enum option_kind { OPTION_CALL, OPTION_TEXT, OPTION_FLAG, OPTION_INT, OPTION_WHOLE, OPTION_REAL } option_kind;

typedef struct option_row {
    const char *name;     /* "threads" is --threads */
    char letter;          /* 'o' is -o as well; 0: none */
    const char *argument; /* "N"; NULL: none; "[=KIND]": may be left out */
    const char *help;     /* a phrase that fits beside the name */

    /* Filled in by one of the macros below. */
    option_kind kind;
    size_t at;         /* of the field in the target */
    int64_t low, high; /* of a number */
    const char *ends;  /* of the name of an output file: ".svg or .html"; NULL: any text */
    attn_status (*set)(void *target, const char *name, const char *value, attn_error *error);

    const char *needed; /* what is missing without it: "output file"; NULL: it may be left out */
    int stands_in;      /* 1: it takes the place of an operand */
    int hidden;         /* 1: accepted, but not in --help */

    const char *const *choices; /* what a value may be, for completions; NULL-terminated, or NULL */
} option_row;

/* The end of a row.  CALL: the function gets the value, NULL if none was given; its message starts with the name: `isa: unknown
 * instruction set 'x'`; CALL_ON: its target is a field, of any type.  The others store in a field of the target, and a field of
 * another type does not compile: a text (const char *); the name of an output file that has one of these ends, ".svg or .html", or
 * with -o "-" for one of tensors; 1 (int); an integer from least to most, or least if the value was left out (int or int64_t); a
 * number above 0 and up to most (0: any), or from 0 (double). */
#define CALL(function)                 .kind = OPTION_CALL, .set = (function)
#define CALL_ON(function, type, field) .kind = OPTION_CALL, .set = (function), .at = offsetof(type, field)
#define TEXT(type, field)              .kind = OPTION_TEXT, .at = OPTION_FIELD(type, field, const char *)
#define OUTPUT(type, field, names)     TEXT(type, field), .ends = (names)
#define FLAG(type, field)              .kind = OPTION_FLAG, .at = OPTION_FIELD(type, field, int)
#define WHOLE(type, field, least, most)                                                                                            \
    .kind = OPTION_WHOLE_KIND(type, field), .at = offsetof(type, field), .low = (least), .high = (most)
#define ABOVE_0(type, field, most)     .kind = OPTION_REAL, .at = OPTION_FIELD(type, field, double), .low = 1, .high = (most)
#define FROM_0(type, field)            .kind = OPTION_REAL, .at = OPTION_FIELD(type, field, double)
#define OPTION_FIELD(type, field, of)  _Generic(((type *)0)->field, of : offsetof(type, field))
#define OPTION_WHOLE_KIND(type, field) _Generic(((type *)0)->field, int : OPTION_INT, int64_t : OPTION_WHOLE)

/* Rows that write into one target; a row with a NULL name ends them. */
typedef struct option_group {
    const char *title; /* "Input" */
    const option_row *rows;
    void *target;
} option_group;

/* An option of the rows that a command lacks since it would change nothing there: rejected, and not in --help. */
typedef struct option_lacked {
    const char *name; /* NULL ends a list */
    const char *why;  /* after "has no effect: " */
} option_lacked;

typedef struct command_usage {
    const char *name;     /* "run" */
    const char *synopsis; /* "IN -o OUT [options]" */
    const char *summary;  /* what it does, in lines of at most 80 characters, ends in a newline */
    const char *notes;    /* after the options: examples and files; may be NULL */
    void (*more)(void);   /* prints more help; may be NULL */

    const char *operands[3]; /* those that are needed, in order, such as "input file"; NULL ends them */
    const char *example;     /* a correct call, for messages about what is missing */

    const char *(*word)(
        int n); /* what the first operand may be, by number from 0, for completions; NULL past the last; may be NULL */

    const char *without; /* "isa seed": options of all commands that have no effect here, accepted but not in --help; may be NULL */
    const option_lacked *lacks; /* options of its own groups; NULL: none */
} command_usage;

/* What the options of all commands set: --threads --isa --seed --quiet --json. */
typedef struct common_settings {
    int threads; /* 0: the library's default */
    attn_isa isa;
    uint64_t seed;
    int quiet;
    int json;
    int invariant, reproducible; /* of attn_options; only bits_options sets them */
    int prints_numbers;          /* 1: the output file is "-": its tensors are printed */
    uint64_t digest;             /* of all options that were given and their values, but those that change no result (options.c) */
} common_settings;

/*
 * Starts a command: parses argv[1] .. argv[argc-1], prints --help and errors, and rejects more than `most` operands and what is
 * missing.  Returns -1 if the command is to go on, else its exit status.  Operands are moved to the end, as getopt_long does:
 * *operands is their first index.
 *
 *  groups  [in]   the command's own: seven at most, ended by one without rows; with those of all commands at most 128 options
 *  common  [out]  is zero before
 */
int options_begin(const command_usage *usage, const option_group *groups, common_settings *common, int argc, char **argv, int most,
                  int *operands);

/* Receives, instead of any work, what a command takes: each option of its --help, and each word of its first operand. */
typedef struct option_list {
    void (*row)(void *context, const option_row *row);
    void (*word)(void *context, const char *word);
    void *context;
} option_list;

/* From here on, commands only tell this list (NULL: they work again). */
void options_tell_list(const option_list *list);

/* A digest with one more option in it, the n-th of this name, whose value may be NULL.  Other options may come in any order. */
uint64_t options_mix(uint64_t digest, const char *name, const char *value, int n);

/* 1 if the name is among the words, which are separated by blanks; NULL: none. */
int options_has_word(const char *words, const char *name);

/* 1 if a command tells what it did: on a terminal, without --quiet and --json. */
int options_tell(const common_settings *settings);

/* --invariant --reproducible, for commands that plan; the target is a common_settings. */
extern const option_row bits_options[];

/* ATTN_ERR_ARGUMENT if --invariant would have no effect: the library reads it in forward only and ignores it elsewhere. */
attn_status options_check_bits(const common_settings *settings, const problem_spec *spec, attn_error *error);

/* The words of problem strings, for command_usage.word. */
const char *problem_word_name(int n);

/* The flags of problem strings (problem_word.flag up to `most`) in a static table; the target is a problem_spec.  --phi and --rule
 * set its `linear`. */
const option_row *problem_options(problem_word_flag most);

/* Parses an integer from low to high. */
attn_status option_int(const char *name, const char *value, int64_t low, int64_t high, int64_t *number, attn_error *error);

/* Parses a number from 0, or with `open` above 0, up to `most` (0: any). */
attn_status option_real(const char *name, const char *value, int open, int64_t most, double *number, attn_error *error);

/* The library's options for these settings. */
attn_options options_for_library(const common_settings *settings);

/* The instruction set that the library chooses with these settings and ATTN_ISA; an error if it has none. */
attn_status options_find_isa(const common_settings *settings, attn_isa *isa, attn_error *error);

#endif
