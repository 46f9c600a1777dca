/* SPDX-License-Identifier: MIT
 *
 * bench.c - `attn bench`: how fast problems run, as a share of what this machine can do, measured in the same run. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "clock.h"
#include "linear.h"
#include "list.h"
#include "measure.h"
#include "report.h"
#include "testing/text/failure.h"
#include "workers.h"

typedef struct bench_settings {
    double seconds;
    const char *problems; /* a file */
    const char *csv;
    int list, samples;
    bench_clock clock;
} bench_settings;

static attn_status set_csv(void *target, const char *name, const char *value, attn_error *error)
{
    if (!*value) return failure(error, ATTN_ERR_ARGUMENT, "%s: the name of the file is empty", name);
    ((bench_settings *)target)->csv = value;
    return ATTN_OK;
}

static attn_status set_clock(void *target, const char *name, const char *value, attn_error *error)
{
    const int cpu = strcmp(value, "cpu") == 0;
    if (!cpu && strcmp(value, "wall") != 0)
        return failure(error, ATTN_ERR_ARGUMENT, "%s: unknown clock '%.40s' (known: wall, cpu)", name, value);
    ((bench_settings *)target)->clock = cpu ? CLOCK_CPU : CLOCK_WALL;
    return ATTN_OK;
}

static const option_row bench_options[] = {
    {"seconds", 0, "S", "time each problem for S seconds in all (default 3)", ABOVE_0(bench_settings, seconds, 86400)},
    {"problems", 0, "FILE", "also measure the problems of FILE, one per line, # for comments", TEXT(bench_settings, problems)},
    {"clock", 0, "NAME", "wall (default) or cpu, for one thread on a busy machine", CALL(set_clock)},
    {"csv", 0, "FILE", "write a row for each problem to FILE", CALL(set_csv)},
    {"samples", 0, NULL, "put the time of each sample into --json, for attn plot latency", FLAG(bench_settings, samples)},
    {"list", 0, NULL, "list the kernels, and problems by their names in other benchmarks", FLAG(bench_settings, list)},
    {0},
};

static const command_usage usage = {
    .name = "bench",
    .synopsis = "[PROBLEM...] [options]",
    .summary = "Times problems and, between their samples, the limits of this machine: multiplications and\n"
               "additions on registers, and plain reads, with the same threads.\n"
               "PROBLEM is a problem string (attn explain --help); by default a few common ones are timed.\n",
    .notes = "Linear attention: linear:f32:hq8:sq8192:d64:causal:phi=favor/256, and linear-bwd for its\n"
             "backward; sq1 decodes. Its flops are those of the chunk size in use.\n"
             "Compare numbers within one run only: clock speed and other load affect all of them.\n"
             "docs/benchmarks.md explains how each is measured; bench/problems.txt is the standard list.\n",
    .word = problem_word_name,
    .example = "attn bench fwd:f32:hq8:sq1024:d64:causal",
};

/* Timed by default: lines of bench/problems.txt, one of each kind. */
static const char *const usual[] = {
    "fwd:f32:hq8:sq2048:d64",  "fwd:f32:hq8:sq2048:d128:causal",      "fwd:f32:b32:hq8:sq100:d64",
    "fwd:bf16:hq8:sq2048:d64", "fwd:f32:hq32:hkv8:sq1:skv32768:d128",
};

/* ---- the problems ---- */

typedef struct problem_list {
    char **text;
    char **from; /* "FILE:LINE"; NULL: from the command line */
    int count, capacity;
} problem_list;

static void list_add(problem_list *list, const char *text, size_t length, const char *file, int line)
{
    if (list->count == list->capacity) {
        const int capacity = list->capacity ? 2 * list->capacity : 64;
        problem_list larger = {need_memory(capacity, sizeof *larger.text), need_memory(capacity, sizeof *larger.from), list->count,
                               capacity};
        for (int k = 0; k < list->count; k++) larger.text[k] = list->text[k], larger.from[k] = list->from[k];
        free(list->text);
        free(list->from);
        *list = larger;
    }
    char *from = NULL;
    if (file) {
        from = need_memory((int64_t)strlen(file) + 16, 1);
        sprintf(from, "%s:%d", file, line);
    }
    list->from[list->count] = from;
    list->text[list->count++] = need_text(text, length);
}

static void list_free(problem_list *list)
{
    for (int k = 0; k < list->count; k++) {
        free(list->text[k]);
        free(list->from[k]);
    }
    free(list->text);
    free(list->from);
}

static attn_status list_read(problem_list *list, const char *path, attn_error *error)
{
    char line[1024];
    FILE *file = fopen(path, "r");
    if (!file) return failure(error, ATTN_ERR_IO, "%s: %s", path, strerror(errno));
    attn_status status = ATTN_OK;
    for (int number = 1; status == ATTN_OK && fgets(line, sizeof line, file); number++) {
        if (strlen(line) == sizeof line - 1)
            status = failure(error, ATTN_ERR_FORMAT, "%s:%d: a line of more than %zu characters", path, number, sizeof line - 2);
        const char *begin = line + strspn(line, " \t\r\n");
        size_t length = strcspn(begin, "#\r\n");
        while (length && isspace((unsigned char)begin[length - 1])) length--;
        if (length && status == ATTN_OK) list_add(list, begin, length, path, number);
    }
    if (status == ATTN_OK && ferror(file)) status = failure(error, ATTN_ERR_IO, "%s: %s", path, strerror(errno));
    fclose(file);
    return status;
}

/* ---- the command ---- */

/* Parses every string before the first problem takes memory and time.  Returns the exit status, or -1 to go on. */
static int parse_all(const problem_list *list, const common_settings *common, problem_spec *spec)
{
    attn_problem problem;
    attn_tensors tensors;
    attn_linear_problem linear;
    attn_linear_tensors of_linear;
    attn_error error;
    for (int k = 0; k < list->count; k++) {
        attn_status status = problem_parse(list->text[k], &spec[k], &error);
        if (status == ATTN_OK)
            status = linear_problem_is(&spec[k]) ? linear_problem_build(&spec[k], &linear, &of_linear, &error)
                                                 : problem_build(&spec[k], &problem, &tensors, &error);
        if (status == ATTN_OK) status = options_check_bits(common, &spec[k], &error);
        if (status == ATTN_OK) continue;
        failure_about(&error, list->text[k]);
        return command_fail(usage.name, list->from[k], &error);
    }
    return -1;
}

static int chosen_threads(const common_settings *settings)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    if (settings->threads) return settings->threads;
    return attn_cpu_describe(&cpu, NULL) == ATTN_OK ? cpu.threads : 1;
}

static int bench(const common_settings *common, const bench_settings *settings, const problem_list *list, const problem_spec *spec,
                 candidate *candidates)
{
    attn_error error;
    ceilings all;
    const int count = list->count, threads = chosen_threads(common);
    attn_isa *isa = need_memory(count, sizeof *isa);
    own_ceilings *against = need_memory(count, sizeof *against);
    result *results = need_memory(count, sizeof *results);
    int exit = EXIT_DONE;
    for (int k = 0; k < count && exit == EXIT_DONE; k++) {
        if (candidate_create(&candidates[k], &spec[k], common, &error) != ATTN_OK) {
            failure_about(&error, list->text[k]);
            exit = command_fail(usage.name, list->from[k], &error);
        }
        isa[k] = candidates[k].plan_says.isa;
    }
    if (exit == EXIT_DONE) {
        attn_isa chosen = ATTN_ISA_SCALAR;
        (void)options_find_isa(common, &chosen, NULL);
        double most_read = common->json ? INFINITY : 0;
        for (int k = 0; k < count; k++) most_read = fmax(most_read, candidates[k].data.bytes);
        ceilings_create(&all, threads, chosen, isa, count, most_read);
        measure_ceilings(&all, settings->seconds);
        for (int k = 0; k < count; k++) against[k] = own_ceilings_of(&all, &candidates[k]);
        measure(candidates, against, count, &all, settings->seconds, common->quiet);
        for (int k = 0; k < count; k++) results[k] = result_of(&candidates[k], &against[k]);
        const report all_results = {&all, settings->seconds, results, count, settings->samples};
        if (common->json) report_json(&all_results);
        else report_text(&all_results);
        if (settings->csv && report_csv(&all_results, settings->csv, &error) != ATTN_OK)
            exit = command_fail(usage.name, NULL, &error);
        ceilings_destroy(&all);
    }
    free(isa);
    free(against);
    free(results);
    return exit;
}

int attn_cmd_bench(int argc, char **argv)
{
    common_settings common = {0};
    bench_settings settings = {.seconds = 3};
    problem_list list = {0};
    const option_group groups[] = {{"Benchmark", bench_options, &settings}, {"Plan", bits_options, &common}, {0}};
    attn_error error;
    int operands, exit = options_begin(&usage, groups, &common, argc, argv, argc, &operands);
    if (exit >= 0) return exit;
    if (settings.list) {
        if (operands < argc) return command_fail_operand(usage.name, argv[operands]);
        bench_list(common.json);
        return EXIT_DONE;
    }
    if (settings.clock == CLOCK_CPU && chosen_threads(&common) != 1) {
        failure(&error, ATTN_ERR_ARGUMENT, "--clock=cpu counts one thread; use it with --threads=1");
        return command_fail(usage.name, NULL, &error);
    }
    clock_choose(settings.clock);
    for (int k = operands; k < argc; k++) list_add(&list, argv[k], strlen(argv[k]), NULL, 0);
    if (settings.problems && list_read(&list, settings.problems, &error) != ATTN_OK) {
        list_free(&list);
        return command_fail(usage.name, NULL, &error);
    }
    if (operands == argc && !settings.problems)
        for (size_t k = 0; k < sizeof usual / sizeof *usual; k++) list_add(&list, usual[k], strlen(usual[k]), NULL, 0);

    problem_spec *spec = need_memory(list.count, sizeof *spec);
    candidate *candidates = need_memory(list.count, sizeof *candidates);
    exit = parse_all(&list, &common, spec);
    if (exit < 0 && list.count == 0) exit = command_fail_missing(usage.name, "problem", usage.example);
    if (exit < 0 && settings.csv &&
        (file_check_distinct(settings.csv, settings.problems, &error) != ATTN_OK || file_check(settings.csv, &error) != ATTN_OK))
        exit = command_fail(usage.name, NULL, &error);
    if (exit < 0 && settings.samples && !common.json) {
        failure(&error, ATTN_ERR_ARGUMENT, "--samples needs --json, into which it puts the times");
        exit = command_fail(usage.name, NULL, &error);
    }
    if (exit < 0) exit = bench(&common, &settings, &list, spec, candidates);
    for (int k = 0; k < list.count; k++) candidate_destroy(&candidates[k]);
    free(candidates);
    free(spec);
    list_free(&list);
    return exit;
}
