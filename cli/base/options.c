/* SPDX-License-Identifier: MIT
 *
 * options.c - parsing and --help from tables of flags. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "file.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

enum { OWN_GROUPS = 7, MAX_OPTIONS = 128, FIRST_ID = 256 /* above every letter */, HELP_ID = FIRST_ID + MAX_OPTIONS };

/* All rows of all groups, numbered, and which of them the command line has. */
typedef struct flat_options {
    const option_row *row[MAX_OPTIONS];
    void *target[MAX_OPTIONS];
    int given[MAX_OPTIONS];
    int count;
    struct option option[MAX_OPTIONS + 2]; /* then --help and the terminator */
    char letters[2 * MAX_OPTIONS + 4];
    uint64_t digest;
    int prints_numbers;
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
    if (!help) help = ""; /* tests/cli/help.sh finds it */
    const char *between = !argument || argument[0] == '[' ? "" : "=";
    if (letter) snprintf(left, sizeof left, "  -%c, --%s%s%s", letter, name, between, argument ? argument : "");
    else snprintf(left, sizeof left, "      --%s%s%s", name, between, argument ? argument : "");
    if (strlen(left) < HELP_COLUMN) printf("%-*s%s\n", HELP_COLUMN, left, help);
    else printf("%s\n%*s%s\n", left, HELP_COLUMN, "", help);
}

int options_has_word(const char *words, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = words ? words : ""; *at; at += strspn(at, " ")) {
        const size_t word = strcspn(at, " ");
        if (word == length && strncmp(at, name, length) == 0) return 1;
        at += word;
    }
    return 0;
}

/* Why the command lacks the option; NULL: it has it. */
static const char *why_lacked(const command_usage *usage, const char *name)
{
    const option_lacked *lacked = usage->lacks;
    while (lacked && lacked->name && strcmp(lacked->name, name) != 0) lacked++;
    return lacked && lacked->name ? lacked->why : NULL;
}

static int is_in_help(const command_usage *usage, const option_row *row)
{
    return !row->hidden && !options_has_word(usage->without, row->name) && !why_lacked(usage, row->name);
}

static void print_help(const command_usage *usage, const option_group *groups)
{
    printf("usage: %s %s %s\n\n%s", command_program(), usage->name, usage->synopsis, usage->summary);
    for (const option_group *g = groups; g->rows; g++) {
        int shown = 0;
        for (const option_row *row = g->rows; row->name; row++) {
            if (!is_in_help(usage, row)) continue;
            if (!shown++) printf("\n%s:\n", g->title);
            print_row(row->letter, row->name, row->argument, row->help);
        }
        if (!g[1].rows) print_row('h', "help", NULL, "print this help");
    }
    if (usage->notes) printf("\n%s", usage->notes);
    if (usage->more) usage->more();
}

/* ---- lists ---- */

static const option_list *told;

void options_tell_list(const option_list *list) { told = list; }

static void tell_list(const command_usage *usage, const option_group *groups)
{
    static const option_row help = {"help", 'h', NULL, "print this help", .hidden = 0};
    for (int n = 0; usage->word && usage->word(n); n++) told->word(told->context, usage->word(n));
    for (const option_group *g = groups; g->rows; g++)
        for (const option_row *row = g->rows; row->name; row++)
            if (is_in_help(usage, row)) told->row(told->context, row);
    told->row(told->context, &help);
}

/* ---- parsing ---- */

static attn_status unknown_option(const flat_options *flat, const char *word, attn_error *error)
{
    char name[41], hint[160];
    nearest near;
    const char *bare = word + strspn(word, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(bare, "="), bare);
    for (int w = 0; problem_word_at(w); w++)
        if (problem_word_at(w)->form == WORD_OPTION && problem_word_at(w)->flag == FLAG_NONE &&
            strcmp(problem_word_at(w)->name, name) == 0)
            return failure(error, ATTN_ERR_ARGUMENT,
                           "unknown option '%.*s%s'; %s is a word of problem strings, which bench, check and explain take",
                           (int)(bare - word), word, name, name);
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

/* getopt_long returns '?' for an unknown option and for an unexpected value, ':' for a missing value. */
static attn_status reject(const flat_options *flat, int id, const char *word, attn_error *error)
{
    int k = index_of(flat, optopt);
    if (id == ':' && k >= 0)
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

static attn_status store(const option_row *row, void *target, const char *value, attn_error *error)
{
    void *const field = (char *)target + row->at;
    attn_status status = ATTN_OK;
    int64_t number = row->low;
    switch (row->kind) {
    case OPTION_CALL:
        return row->set(field, row->name, value, error);
    case OPTION_TEXT:
        *(const char **)field = value;
        break;
    case OPTION_FLAG:
        *(int *)field = 1;
        break;
    case OPTION_INT:
    case OPTION_WHOLE:
        if (value) status = option_int(row->name, value, row->low, row->high, &number, error);
        if (status == ATTN_OK && row->kind == OPTION_INT) *(int *)field = (int)number;
        if (status == ATTN_OK && row->kind == OPTION_WHOLE) *(int64_t *)field = number;
        break;
    case OPTION_REAL:
        status = option_real(row->name, value, row->low > 0, row->high, field, error);
    }
    return status;
}

/* Returns -1 to go on, else the exit status. */
static int parse(const command_usage *usage, const option_group *groups, flat_options *flat, int argc, char **argv)
{
    attn_error error, why;
    opterr = 0;
    optind = 1;
    for (;;) {
        int before = optind;
        int id = getopt_long(argc, argv, flat->letters, flat->option, NULL);
        if (id == -1) break;
        if (id == HELP_ID || id == 'h') {
            print_help(usage, groups);
            return EXIT_DONE;
        }
        if (id == '?' || id == ':') {
            /* optind stays at a cluster of letters until its last letter */
            reject(flat, id, argv[optind > before ? optind - 1 : optind], &error);
            return command_fail(usage->name, NULL, &error);
        }
        int k = index_of(flat, id);
        if (k < 0) continue; /* cannot happen: getopt_long returns only ids of the table */
        const char *why_not = why_lacked(usage, flat->row[k]->name);
        if (why_not) {
            failure(&error, ATTN_ERR_ARGUMENT, "--%s has no effect: %s", flat->row[k]->name, why_not);
            return command_fail(usage->name, NULL, &error);
        }
        flat->given[k]++;
        if (!options_has_word("output threads isa json quiet", flat->row[k]->name))
            flat->digest = options_mix(flat->digest, flat->row[k]->name, optarg, flat->given[k]);
        if (store(flat->row[k], flat->target[k], optarg, &why) != ATTN_OK) {
            failure(&error, why.status, "--%.230s", why.message);
            return command_fail(usage->name, NULL, &error);
        }
    }
    for (int k = 0; k < flat->count; k++) { /* of an option that was repeated, the last value counts */
        const option_row *row = flat->row[k];
        const char *path = flat->given[k] && row->ends ? *(const char *const *)((const char *)flat->target[k] + row->at) : NULL;
        if (path && strcmp(path, "-") == 0 && row->letter == 'o' && strstr(row->ends, ".safetensors")) flat->prints_numbers = 1;
        else if (path && file_check_name(path, row->ends, &error) != ATTN_OK) return command_fail(usage->name, NULL, &error);
    }
    return -1;
}

uint64_t options_mix(uint64_t digest, const char *name, const char *value, int n)
{
    uint64_t hash = UINT64_C(14695981039346656037) + (uint64_t)n; /* FNV-1a */
    for (const char *at = name; *at; at++) hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    hash *= UINT64_C(1099511628211); /* where the value begins */
    for (const char *at = value; at && *at; at++) hash = (hash ^ (unsigned char)*at) * UINT64_C(1099511628211);
    return digest + hash;
}

/* The first thing that is missing; NULL: nothing is. */
static const char *missing(const command_usage *usage, const flat_options *flat, int operands)
{
    for (int k = 0; k < flat->count; k++) operands += flat->given[k] && flat->row[k]->stands_in;
    for (int n = 0; usage->operands[n]; n++)
        if (n >= operands) return usage->operands[n];
    for (int k = 0; k < flat->count; k++)
        if (!flat->given[k] && flat->row[k]->needed) return flat->row[k]->needed;
    return NULL;
}

/* ---- common options ---- */

attn_status option_int(const char *name, const char *value, int64_t low, int64_t high, int64_t *number, attn_error *error)
{
    char *end;
    errno = 0;
    long long x = strtoll(value, &end, 10);
    if (!*value || strspn(value, "-0123456789") != strlen(value) || *end)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not an integer", name, value);
    if (errno) return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' does not fit in 64 bits", name, value);
    if (x < low && high == INT64_MAX)
        return failure(error, ATTN_ERR_ARGUMENT, "%s is %lld; it must be at least %lld", name, x, (long long)low);
    if (x < low || x > high)
        return failure(error, ATTN_ERR_ARGUMENT, "%s (%lld) is not between %lld and %lld", name, x, (long long)low,
                       (long long)high);
    *number = x;
    return ATTN_OK;
}

attn_status option_real(const char *name, const char *value, int open, int64_t most, double *number, attn_error *error)
{
    char *end, limit[40] = "";
    const double x = strtod(value, &end);
    const int is_number = *value && strspn(value, "+-.0123456789eE") == strlen(value) && !*end && isfinite(x);
    if (most) snprintf(limit, sizeof limit, " and up to %lld", (long long)most);
    if (!is_number || x < 0 || (open && x == 0) || (most && x > (double)most))
        return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not a number %s%s", name, value,
                       open ? "above 0" : "of at least 0", limit);
    *number = x;
    return ATTN_OK;
}

static attn_status set_isa(void *target, const char *name, const char *value, attn_error *error)
{
    static const attn_isa known[] = {ATTN_ISA_SCALAR, ATTN_ISA_AVX2, ATTN_ISA_AVX512, ATTN_ISA_NEON, ATTN_ISA_WASM128};
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

static const char *const isa_choices[] = {"scalar", "avx2", "avx512", "neon", "wasm128", NULL};
static const option_row common_options[] = {
    {"threads", 0, "N", "number of threads (default: all)", WHOLE(common_settings, threads, 0, 1024)},
    {"isa", 0, "NAME", "use this instruction set: scalar, avx2, avx512, neon, wasm128", CALL(set_isa), .choices = isa_choices},
    {"seed", 0, "N", "seed of the random numbers (default 0)", CALL(set_seed)},
    {"json", 0, NULL, "print one JSON object and nothing else", FLAG(common_settings, json)},
    {"quiet", 'q', NULL, "print no progress and no summary", FLAG(common_settings, quiet)},
    {0},
};

/* ---- a command begins ---- */

int options_begin(const command_usage *usage, const option_group *own, common_settings *common, int argc, char **argv, int most,
                  int *operands)
{
    option_group groups[OWN_GROUPS + 2] = {{0}};
    flat_options flat = {0};
    int n = 0;
    for (; n < OWN_GROUPS && own[n].rows; n++) groups[n] = own[n];
    groups[n] = (option_group){"All commands", common_options, common};
    if (told) {
        tell_list(usage, groups);
        return EXIT_DONE;
    }
    flatten(groups, &flat);
    const int exit = parse(usage, groups, &flat, argc, argv);
    if (exit >= 0) return exit;
    common->digest = flat.digest;
    common->prints_numbers = flat.prints_numbers;
    if (flat.prints_numbers && common->json) {
        attn_error error;
        failure(&error, ATTN_ERR_ARGUMENT, "-o - and --json both print on standard output; give one of them");
        return command_fail(usage->name, NULL, &error);
    }
    *operands = optind;
    if (argc - optind > most) return command_fail_operand(usage->name, argv[optind + most]);
    const char *what = missing(usage, &flat, argc - optind);
    return what ? command_fail_missing(usage->name, what, usage->example) : -1;
}

int options_tell(const common_settings *settings)
{
    return !settings->quiet && !settings->json && !settings->prints_numbers && isatty(STDOUT_FILENO);
}

/* ---- bitwise equality ---- */

const option_row bits_options[] = {
    {"invariant", 0, NULL, "forward: a query has the same bits in any chunk of queries", FLAG(common_settings, invariant)},
    {"reproducible", 0, NULL, "the same bits with avx2, avx512 and neon; scalar is rejected", FLAG(common_settings, reproducible)},
    {0},
};

attn_status options_check_bits(const common_settings *settings, const problem_spec *spec, attn_error *error)
{
    if (!settings->invariant || spec->op == SPEC_FORWARD || spec->op == SPEC_DECODE) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "--invariant is for fwd and decode; %s does not guarantee it", problem_op_name(spec));
}

static attn_status set_problem_word(void *target, const char *name, const char *value, attn_error *error)
{
    problem_spec *spec = target;
    if (strcmp(name, "phi") == 0 || strcmp(name, "rule") == 0) spec->linear = 1;
    return problem_set(spec, name, value, error);
}

const char *problem_word_name(int n)
{
    for (int w = 0; problem_word_at(w); w++) {
        const problem_word *word = problem_word_at(w);
        const char *const *choices = word->form == WORD_IS_VALUE ? problem_word_choices(word) : NULL;
        for (int k = 0; choices && choices[k]; k++)
            if (n-- == 0) return choices[k];
        if (word->form == WORD_OPTION && n-- == 0) return word->name;
    }
    return NULL;
}

const option_row *problem_options(problem_word_flag most)
{
    static option_row rows[MAX_OPTIONS];
    int count = 0;
    for (int w = 0; problem_word_at(w) && count < MAX_OPTIONS - 1; w++) {
        const problem_word *word = problem_word_at(w);
        if (word->flag == FLAG_NONE || word->flag > most) continue;
        rows[count++] =
            (option_row){word->name, 0, word->argument, word->help, CALL(set_problem_word), .choices = problem_word_choices(word)};
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

attn_status options_find_isa(const common_settings *settings, attn_isa *isa, attn_error *error)
{
    attn_plan *plan = NULL;
    attn_plan_description says = {.struct_size = sizeof says};
    const attn_options options = options_for_library(settings);
    const attn_problem small = {.struct_size = sizeof small, .shape = {1, 1, 1, 1, 1, 1, 1}};
    const attn_tensors needed = tensors_needed(ATTN_FORWARD);
    attn_status status = attn_plan_create(&plan, &small, &needed, &options, error);
    if (status == ATTN_OK) status = attn_plan_describe(plan, &says, error);
    attn_plan_destroy(plan);
    if (status == ATTN_OK) *isa = says.isa;
    return status;
}
