/* SPDX-License-Identifier: MIT
 *
 * options.c - the parser and the help that follow from tables of flags. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

enum { MAX_OPTIONS = 128, FIRST_ID = 256 /* above every letter */, HELP_ID = FIRST_ID + MAX_OPTIONS };

/* All rows of all groups, numbered. */
typedef struct flat_options {
    const option_row *row[MAX_OPTIONS];
    void *target[MAX_OPTIONS];
    int count;
    struct option option[MAX_OPTIONS + 2]; /* and --help, and the end */
    char letters[2 * MAX_OPTIONS + 4];
} flat_options;

static int takes_argument(const option_row *row)
{
    return !row->argument ? no_argument : row->argument[0] == '[' ? optional_argument : required_argument;
}

static void flatten(const option_group *groups, flat_options *flat)
{
    char *letter = flat->letters;
    *letter++ = ':'; /* tell a missing value from an unknown option */
    *letter++ = 'h';
    flat->count = 0;
    for (const option_group *g = groups; g->rows; g++) {
        for (const option_row *row = g->rows; row->name && flat->count < MAX_OPTIONS; row++) {
            int k = flat->count++;
            flat->row[k] = row;
            flat->target[k] = g->target;
            flat->option[k] = (struct option){row->name, takes_argument(row), NULL, FIRST_ID + k};
            if (row->letter) *letter++ = row->letter;
            if (row->letter && row->argument) *letter++ = ':';
        }
    }
    *letter = 0;
    flat->option[flat->count] = (struct option){"help", no_argument, NULL, HELP_ID};
    flat->option[flat->count + 1] = (struct option){NULL, 0, NULL, 0};
}

/* ---- help ---- */

enum { HELP_COLUMN = 28 };

static void print_row(char letter, const char *name, const char *argument, const char *help)
{
    char left[80];
    const char *between = !argument || argument[0] == '[' ? "" : "=";
    if (letter) snprintf(left, sizeof left, "  -%c, --%s%s%s", letter, name, between, argument ? argument : "");
    else snprintf(left, sizeof left, "      --%s%s%s", name, between, argument ? argument : "");
    if (strlen(left) < HELP_COLUMN) printf("%-*s%s\n", HELP_COLUMN, left, help);
    else printf("%s\n%*s%s\n", left, HELP_COLUMN, "", help);
}

static void print_help(const command_usage *usage, const option_group *groups)
{
    printf("usage: attn %s %s\n\n%s", usage->name, usage->synopsis, usage->summary);
    for (const option_group *g = groups; g->rows; g++) {
        printf("\n%s:\n", g->title);
        for (const option_row *row = g->rows; row->name; row++)
            if (row->help) print_row(row->letter, row->name, row->argument, row->help);
        if (!g[1].rows) print_row('h', "help", NULL, "print this help");
    }
    if (usage->notes) printf("\n%s", usage->notes);
    if (usage->more) usage->more();
}

/* ---- parsing ---- */

static attn_status unknown_option(const flat_options *flat, const char *word, attn_error *error)
{
    char name[41], hint[160];
    nearest near;
    const char *bare = word + strspn(word, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(bare, "="), bare);
    nearest_init(&near, name);
    for (int k = 0; k <= flat->count; k++) nearest_offer(&near, flat->option[k].name);
    nearest_print(&near, "--", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "unknown option '%.*s%s'%s", (int)(bare - word), word, name, hint);
}

static int index_of(const flat_options *flat, int id)
{
    if (id >= FIRST_ID) return id - FIRST_ID;
    for (int k = 0; k < flat->count; k++)
        if (id && flat->row[k]->letter == id) return k;
    return -1;
}

/* getopt_long says '?' for unknown options and for a value where none belongs, and ':' where one is missing. */
static attn_status reject(const flat_options *flat, int said, const char *word, attn_error *error)
{
    int k = index_of(flat, optopt);
    if (said == ':' && k >= 0)
        return failure(error, ATTN_ERR_ARGUMENT, "option --%s needs a value: --%s=%s", flat->row[k]->name, flat->row[k]->name,
                       flat->row[k]->argument);
    if (optopt >= FIRST_ID)
        return failure(error, ATTN_ERR_ARGUMENT, "option --%s takes no value", optopt == HELP_ID ? "help" : flat->row[k]->name);
    if (word[0] == '-' && word[1] != '-') {
        char letter[3] = {'-', (char)optopt, 0};
        return failure(error, ATTN_ERR_ARGUMENT, "unknown option '%s'", letter);
    }
    return unknown_option(flat, word, error);
}

options_result options_parse(const command_usage *usage, const option_group *groups, int argc, char **argv, int *operands,
                             attn_error *error)
{
    flat_options flat;
    flatten(groups, &flat);
    opterr = 0;
    optind = 1;
    for (;;) {
        int before = optind;
        int id = getopt_long(argc, argv, flat.letters, flat.option, NULL);
        if (id == -1) break;
        if (id == HELP_ID || id == 'h') {
            print_help(usage, groups);
            return OPTIONS_HELP;
        }
        if (id == '?' || id == ':') {
            /* a cluster of letters leaves optind at its word until it is done */
            reject(&flat, id, argv[optind > before ? optind - 1 : optind], error);
            return OPTIONS_WRONG;
        }
        int k = index_of(&flat, id);
        attn_error why;
        if (k < 0) continue; /* getopt_long gives what it was given */
        if (flat.row[k]->set(flat.target[k], flat.row[k]->name, optarg, &why) != ATTN_OK) {
            failure(error, why.status, "--%.230s", why.message);
            return OPTIONS_WRONG;
        }
    }
    *operands = optind;
    return OPTIONS_RUN;
}

int options_begin(const command_usage *usage, const option_group *groups, int argc, char **argv, int most, int *operands)
{
    attn_error error;
    switch (options_parse(usage, groups, argc, argv, operands, &error)) {
    case OPTIONS_HELP:
        return EXIT_DONE;
    case OPTIONS_WRONG:
        return command_fail(usage->name, NULL, &error);
    case OPTIONS_RUN:
        break;
    }
    return argc - *operands > most ? command_fail_operand(usage->name, argv[*operands + most]) : -1;
}

/* ---- common options ---- */

attn_status option_whole(const char *name, const char *value, int64_t low, int64_t high, int64_t *number, attn_error *error)
{
    char *end;
    errno = 0;
    long long x = strtoll(value, &end, 10);
    if (!*value || strspn(value, "-0123456789") != strlen(value) || *end || errno)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not a whole number", name, value);
    if (x < low && high == INT64_MAX)
        return failure(error, ATTN_ERR_ARGUMENT, "%s (%lld) is not %lld or more", name, x, (long long)low);
    if (x < low || x > high)
        return failure(error, ATTN_ERR_ARGUMENT, "%s (%lld) is not within %lld and %lld", name, x, (long long)low, (long long)high);
    *number = x;
    return ATTN_OK;
}

static attn_status set_threads(void *target, const char *name, const char *value, attn_error *error)
{
    int64_t threads = 0;
    attn_status status = option_whole(name, value, 0, 65536, &threads, error);
    if (status == ATTN_OK) ((common_settings *)target)->threads = (int)threads;
    return status;
}

static attn_status set_isa(void *target, const char *name, const char *value, attn_error *error)
{
    static const attn_isa known[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON};
    char hint[120];
    nearest near;
    nearest_init(&near, value);
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        ((common_settings *)target)->isa = known[k];
        if (strcmp(value, attn_isa_name(known[k])) == 0) return ATTN_OK;
        nearest_offer(&near, attn_isa_name(known[k]));
    }
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "%s: unknown instruction set '%.40s'%s", name, value, hint);
}

static attn_status set_seed(void *target, const char *name, const char *value, attn_error *error)
{
    problem_spec spec;
    problem_init(&spec);
    attn_status status = problem_set(&spec, name, value, error);
    if (status == ATTN_OK) ((common_settings *)target)->seed = spec.seed;
    return status;
}

static attn_status set_quiet(void *target, const char *name, const char *value, attn_error *error)
{
    (void)name, (void)value, (void)error;
    ((common_settings *)target)->quiet = 1;
    return ATTN_OK;
}

static attn_status set_json(void *target, const char *name, const char *value, attn_error *error)
{
    (void)name, (void)value, (void)error;
    ((common_settings *)target)->json = 1;
    return ATTN_OK;
}

const option_row common_options[] = {
    {"threads", 0, "N", "how many threads may work (default: all)", set_threads},
    {"isa", 0, "NAME", "use this instruction set: scalar, avx2, avx512, neon", set_isa},
    {"seed", 0, "N", "what random numbers are drawn from (default 0)", set_seed},
    {"json", 0, NULL, "print one JSON object and nothing else", set_json},
    {"quiet", 'q', NULL, "print no progress and no summary", set_quiet},
    {NULL, 0, NULL, NULL, NULL},
};

/* ---- which bits are to be the same ---- */

static attn_status set_bits(void *target, const char *name, const char *value, attn_error *error)
{
    common_settings *settings = target;
    (void)value, (void)error;
    *(strcmp(name, "invariant") == 0 ? &settings->invariant : &settings->reproducible) = 1;
    return ATTN_OK;
}

const option_row bits_options[] = {
    {"invariant", 0, NULL, "forward: a query has the same bits in any chunk of queries", set_bits},
    {"reproducible", 0, NULL, "the same bits with avx2, avx512 and neon; scalar is rejected", set_bits},
    {NULL, 0, NULL, NULL, NULL},
};

attn_status options_check_bits(const common_settings *settings, const problem_spec *spec, attn_error *error)
{
    if (!settings->invariant || spec->op == SPEC_FORWARD || spec->op == SPEC_DECODE) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "--invariant is for fwd and decode, and means nothing for %s", problem_op_name(spec));
}

static attn_status set_problem_word(void *target, const char *name, const char *value, attn_error *error)
{
    return problem_set(target, name, value, error);
}

const option_row *problem_options(problem_word_flag most)
{
    static option_row rows[MAX_OPTIONS];
    int count = 0;
    for (int w = 0; problem_word_at(w) && count < MAX_OPTIONS - 1; w++) {
        const problem_word *word = problem_word_at(w);
        if (word->flag == FLAG_NONE || word->flag > most) continue;
        rows[count++] = (option_row){word->name, 0, word->argument, word->help, set_problem_word};
    }
    rows[count] = (option_row){0};
    return rows;
}

attn_options options_for_library(const common_settings *settings)
{
    return (attn_options){.struct_size = sizeof(attn_options),
                          .threads = settings->threads,
                          .isa = settings->isa,
                          .invariant = settings->invariant,
                          .reproducible = settings->reproducible};
}
