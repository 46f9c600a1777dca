/* SPDX-License-Identifier: MIT
 *
 * bench.c - `attn-mpi bench`: how problems scale with the number of ranks. */
#include <stdlib.h>

#include "cli/base/commands.h"
#include "commands.h"
#include "scaling.h"
#include "testing/text/failure.h"

typedef struct bench_settings {
    double seconds;
    split_settings split;
} bench_settings;

static const option_row bench_options[] = {
    {"seconds", 0, "S", "time each number of ranks for S seconds (default 2)", ABOVE_0(bench_settings, seconds, 86400)},
    {0},
};

static const command_usage usage = {
    .name = "bench",
    .synopsis = "[PROBLEM...] [options]",
    .summary = "Times problems on 1, 2, 4, ... of the processes that mpirun starts, and on all of them: strong\n"
               "scaling, where the problem stays the same, and weak scaling, where each process has as\n"
               "many tokens as the problem has. PROBLEM is a problem string (attn explain --help).\n",
    .notes = "Efficiency is the speed of a process as a share of that of one process alone. messages is the\n"
             "share of the time of all processes that is spent in MPI, mostly waiting for others.\n"
             "Not there yet: linear attention, and sequences of different lengths.\n"
             "docs/distributed.md explains the fields of --json, which `attn plot scaling` draws.\n"
             "\n"
             "Example:\n"
             "  mpirun -n 4 attn-mpi bench fwd:f32:hq8:sq8192:d64:causal --json >scaling.json\n"
             "  attn plot scaling scaling.json -o scaling.svg\n",
    .example = "mpirun -n 4 attn-mpi bench fwd:f32:hq8:sq8192:d64:causal",
};

static const char *const usual[] = {"fwd:f32:hq8:sq8192:d64:causal"};

enum { MOST_POINTS = 33 /* powers of two up to 2^31, and a number that is none */ };

static int next_number(int n, int all) { return n < all && 2 * (int64_t)n > all ? all : 2 * n; }

/* Both kinds of scaling of a problem; returns how many points were added, or -1. */
static int measure(const char *text, const bench_settings *settings, const ranks *r, const common_settings *common,
                   scaling_point *points, attn_error *error)
{
    problem_spec spec;
    int count = 0;
    (void)problem_parse(text, &spec, NULL); /* which is done for all problems before */
    spec.seed = common->seed ? common->seed : spec.seed;
    for (int kind = SCALING_STRONG; kind <= SCALING_WEAK; kind++) {
        const int first = count;
        for (int n = 1; n <= r->count; n = next_number(n, r->count)) {
            scaling_point *p = &points[count++];
            *p = (scaling_point){.problem = text, .kind = (scaling_kind)kind, .ranks = n};
            if (kind == SCALING_WEAK && n == 1) { /* which is the same */
                *p = points[0];
                p->kind = SCALING_WEAK;
            } else if (scaling_measure(p, &spec, r, &settings->split, common, settings->seconds, error) != ATTN_OK) {
                (void)failure_about(error, p->measured);
                return -1;
            }
            scaling_compare(p, &points[first]);
        }
    }
    return count;
}

static int bench(char *const *problems, int count, const bench_settings *settings, const ranks *r, common_settings *common)
{
    scaling_point *points = need_memory((int64_t)count * 2 * MOST_POINTS, sizeof *points);
    int used = 0, exit = EXIT_DONE;
    attn_error error;
    common->threads = ranks_threads(r, common);
    for (int k = 0; k < count && exit == EXIT_DONE; k++) {
        const int more = measure(problems[k], settings, r, common, points + used, &error);
        if (more < 0) exit = command_fail(usage.name, NULL, &error);
        else used += more;
    }
    attn_options resolved = options_for_library(common);
    (void)attn_options_resolve(&resolved, &resolved, NULL);
    if (exit == EXIT_DONE && r->rank == 0) {
        if (common->json) scaling_print_json(points, used, r, resolved.threads, settings->seconds);
        else scaling_print_text(points, used, r, resolved.threads);
    }
    free(points);
    return exit;
}

/* Rejects a wrong string before the first problem takes time. */
static int check(char *const *problems, int count, const common_settings *common)
{
    attn_error error;
    for (int k = 0; k < count; k++) {
        problem_spec spec;
        attn_status status = problem_parse(problems[k], &spec, &error);
        if (status == ATTN_OK) status = trial_check(&spec, &error);
        if (status == ATTN_OK) status = options_check_bits(common, &spec, &error);
        if (status != ATTN_OK) return command_fail(usage.name, problems[k], &error);
    }
    return EXIT_DONE;
}

int mpi_cmd_bench(int argc, char **argv)
{
    common_settings common = {0};
    bench_settings settings = {.seconds = 2};
    const option_group groups[] = {{"Benchmark", bench_options, &settings},
                                   {"Processes", split_options, &settings.split},
                                   {"Processes: what they are predicted to do", machine_options, &settings.split.machine},
                                   {"Plan", bits_options, &common},
                                   {0}};
    attn_error error;
    ranks r;
    int operands;
    int exit = options_begin(&usage, groups, &common, argc, argv, argc, &operands);
    if (exit >= 0) return exit;
    const int given = operands < argc, count = given ? argc - operands : (int)(sizeof usual / sizeof *usual);
    char *const *problems = given ? argv + operands : (char *const *)(uintptr_t)usual;
    exit =
        split_check(&settings.split, &error) == ATTN_OK ? check(problems, count, &common) : command_fail(usage.name, NULL, &error);
    if (exit != EXIT_DONE) return exit;
    for (int k = 0; k < count; k++) common.digest = options_mix(common.digest, "", problems[k], k);
    if (ranks_meet(usage.name, common.digest, &error) != ATTN_OK || ranks_open(&r, MPI_COMM_WORLD, &error) != ATTN_OK)
        return command_fail(usage.name, NULL, &error);
    exit = bench(problems, count, &settings, &r, &common);
    ranks_close(&r);
    return exit;
}
