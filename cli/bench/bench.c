/* SPDX-License-Identifier: MIT
 *
 * bench.c - `attn bench`: how fast problems run, as a share of what this machine can do, measured in the same run. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "list.h"
#include "measure.h"
#include "report.h"
#include "settings.h"
#include "testing/problem/linear_problem.h"
#include "testing/text/failure.h"
#include "workers.h"

static const command_usage usage = {
    .name = "bench",
    .synopsis = "[NAME|PROBLEM...] [options]",
    .summary = "Times problems and, between their samples, the limits of this machine: multiplications and\n"
               "additions on registers, and plain reads, with the same threads.\n"
               "NAME is an implementation as other benchmarks name it: standard, flash, mha, gqa, mla, linear,\n"
               "... (--list has all, with what each stands for).\n"
               "PROBLEM is a problem string (attn explain --help); by default a few common ones are timed.\n",
    .notes = "Sweeps: a size with several numbers (sq256,512,1024), or several words that are a value\n"
             "(fwd,bwd or f32,bf16), stand for all combinations; the last word changes fastest.  Options\n"
             "after = do not sweep: window=5,0 is a pair.\n"
             "Linear attention: linear:f32:hq8:sq8192:d64:causal:phi=favor/256, and linear-bwd for its\n"
             "backward; sq1 decodes. Its flops are those of the chunk size in use.\n"
             "Decoding: decode:f32:hq32:hkv8:sq1:skv4096:d128 appends sq tokens to a cache that then has\n"
             "skv, and attends; rope rotates, page=N, int8, ktype= and vtype= store, steps=N lets it grow.\n"
             "Over a matrix of all scores: matrix:f32:hq8:sq1024:d64[:causal].\n"
             "Layers with projections: layer:mha, layer:gqa or layer:mla, then fwd, bwd, prefill or decode,\n"
             "sizes, mN (channels of the model), for mla rank=N, rank-query=N, rotary=N:\n"
             "  layer:gqa:decode:f32:b1:hq32:hkv8:sq1:skv512:d128:m4096:rope\n"
             "Compare numbers within one run only: clock speed and other load affect all of them.\n"
             "docs/benchmarks.md explains how each is measured; bench/problems.txt is the standard list.\n"
             "\nExamples:\n"
             "  attn bench standard flash mha linear -s 256,512 --csv=times.csv\n"
             "  attn plot runtime times.csv -o times.svg\n"
             "  attn bench decode:bf16,int8:hq8:hkv2:sq1:skv1024,4096:d64:page=16:rope\n"
             "  attn bench layer:gqa:fwd,bwd,prefill:hq8:hkv2:sq256:d64 --iterations=20\n",
    .word = problem_word_name,
    .example = "attn bench fwd:f32:hq8:sq1024:d64:causal",
};

/* Timed by default: lines of bench/problems.txt, one of each kind. */
static const char *const usual[] = {
    "fwd:f32:hq8:sq2048:d64",  "fwd:f32:hq8:sq2048:d128:causal",      "fwd:f32:b32:hq8:sq100:d64",
    "fwd:bf16:hq8:sq2048:d64", "fwd:f32:hq32:hkv8:sq1:skv32768:d128",
};

/* ---- the problems ---- */

/* What would be rejected later, without memory for it. */
static attn_status check_problem(const operand *o, attn_error *error)
{
    attn_problem problem;
    attn_tensors tensors;
    attn_linear_problem linear;
    attn_linear_tensors of_linear;
    if (o->kind != OPERAND_PROBLEM || o->spec.op == SPEC_DECODE) return candidate_check(o, error);
    if (linear_problem_is(&o->spec)) return linear_problem_build(&o->spec, &linear, &of_linear, error);
    return problem_build(&o->spec, &problem, &tensors, error);
}

/* Parses every string before the first problem takes memory and time.  Returns the exit status, or -1 to go on. */
static int parse_all(const problem_list *list, const common_settings *common)
{
    attn_error error;
    for (int k = 0; k < list->count; k++) {
        problem_entry *e = &list->entry[k];
        attn_status status = operand_parse(e->text, &e->operand, &error);
        if (status == ATTN_OK) status = check_problem(&e->operand, &error);
        if (status == ATTN_OK) status = options_check_bits(common, &e->operand.spec, &error);
        if (status == ATTN_OK) continue;
        failure_about(&error, e->text);
        return command_fail(usage.name, e->from, &error);
    }
    return -1;
}

static int chosen_threads(const common_settings *settings)
{
    attn_cpu_description cpu = {.struct_size = sizeof cpu};
    if (settings->threads) return settings->threads;
    return attn_cpu_describe(&cpu, NULL) == ATTN_OK ? cpu.threads : 1;
}

/* Measures and reports candidates that exist. */
static int measure_all(const common_settings *common, const bench_settings *settings, candidate *candidates, int count,
                       const int *base)
{
    attn_error error;
    ceilings all;
    attn_isa chosen = ATTN_ISA_SCALAR, *isa = need_memory(count, sizeof *isa);
    own_ceilings *against = need_memory(count, sizeof *against);
    result *results = need_memory(count, sizeof *results);
    const int64_t samples = settings->iterations;
    const measure_limit limit = {samples ? 0 : settings->seconds, samples ? samples : 1};
    double most_read = common->json || settings->csv ? INFINITY : 0;
    int exit = EXIT_DONE;
    (void)options_find_isa(common, &chosen, NULL);
    for (int k = 0; k < count; k++) {
        isa[k] = candidates[k].plan_says.isa;
        most_read = fmax(most_read, candidates[k].data.bytes);
    }
    ceilings_create(&all, chosen, isa, count, most_read);
    measure_ceilings(&all, settings->seconds);
    for (int k = 0; k < count; k++) against[k] = own_ceilings_of(&all, &candidates[k]);
    measure(candidates, against, count, &all, &limit, common->quiet);
    for (int k = 0; k < count; k++) results[k] = result_of(&candidates[k], &against[k]);
    const report all_results = {&all, settings->seconds, results, count, settings->samples, base, settings->iterations};
    if (common->json) report_json(&all_results);
    else report_text(&all_results);
    if (settings->csv && report_csv(&all_results, settings->csv, &error) != ATTN_OK) exit = command_fail(usage.name, NULL, &error);
    ceilings_destroy(&all);
    free(isa);
    free(against);
    free(results);
    return exit;
}

static int bench(const common_settings *common, const bench_settings *settings, const problem_list *list)
{
    attn_error error;
    const sampling how = {settings->iterations > 0, settings->warmup};
    candidate *candidates = need_memory(list->count, sizeof *candidates);
    int exit = EXIT_DONE, *base = need_memory(list->count, sizeof *base);
    if (problems_compare(list, settings->baseline, base, &error) != ATTN_OK) exit = command_fail(usage.name, NULL, &error);
    if (exit == EXIT_DONE) workers_create(chosen_threads(common));
    for (int k = 0; k < list->count && exit == EXIT_DONE; k++) {
        const problem_entry *e = &list->entry[k];
        candidates[k].name = e->name;
        if (candidate_create(&candidates[k], &e->operand, common, &how, &error) == ATTN_OK) continue;
        failure_about(&error, e->text);
        exit = command_fail(usage.name, e->from, &error);
    }
    if (exit == EXIT_DONE) exit = measure_all(common, settings, candidates, list->count, base);
    for (int k = 0; k < list->count; k++) candidate_destroy(&candidates[k]);
    workers_destroy();
    free(candidates);
    free(base);
    return exit;
}

/* ---- the command ---- */

/* The words of the command line, of a file, or the usual ones. */
static attn_status collect(problem_list *list, const bench_settings *settings, int count, char **words, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int k = 0; k < count && status == ATTN_OK; k++) status = problems_add(list, words[k], &settings->sizes, NULL, 0, error);
    if (settings->problems && status == ATTN_OK) status = problems_read(list, settings->problems, &settings->sizes, error);
    for (size_t k = 0; !count && !settings->problems && k < sizeof usual / sizeof *usual && status == ATTN_OK; k++)
        status = problems_add(list, usual[k], &settings->sizes, NULL, 0, error);
    return status;
}

static attn_status check_flags(const common_settings *common, const bench_settings *s, const problem_list *list, attn_error *error)
{
    if (s->sizes.given && !list->names)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "--%s is for names, of which there is none; a string has its own sizes, as in sq256,512", s->sizes.given);
    if (s->csv && (file_check_distinct(s->csv, s->problems, error) != ATTN_OK || file_check(s->csv, error) != ATTN_OK))
        return error->status;
    if (s->samples && !common->json)
        return failure(error, ATTN_ERR_ARGUMENT, "--samples needs --json, into which it puts the times");
    return ATTN_OK;
}

static attn_status check_sizes(const name_sizes *sizes, attn_error *error)
{
    if (sizes->width % sizes->heads == 0) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "--embed-dim (%" PRId64 ") is not a multiple of --num-heads (%" PRId64 ")",
                   sizes->width, sizes->heads);
}

int attn_cmd_bench(int argc, char **argv)
{
    common_settings common = {0};
    bench_settings settings = bench_defaults;
    problem_list list = {0};
    const option_group groups[] = {
        {"Benchmark", bench_options, &settings}, {"Sizes of names", name_options, &settings}, {"Plan", bits_options, &common}, {0}};
    attn_error error;
    int operands, exit = options_begin(&usage, groups, &common, argc, argv, argc, &operands);
    if (exit >= 0) return exit;
    if (check_sizes(&settings.sizes, &error) != ATTN_OK) return command_fail(usage.name, NULL, &error);
    if (settings.list) {
        const name_sizes *s = &settings.sizes;
        const registry_sizes sizes = {s->batch[0], s->tokens[0], s->width, s->heads, s->causal};
        if (operands < argc) return command_fail_operand(usage.name, argv[operands]);
        bench_list(&sizes, common.json);
        return EXIT_DONE;
    }
    if (settings.clock == CLOCK_CPU && chosen_threads(&common) != 1) {
        failure(&error, ATTN_ERR_ARGUMENT, "--clock=cpu counts one thread; use it with --threads=1");
        return command_fail(usage.name, NULL, &error);
    }
    clock_choose(settings.clock);
    exit = collect(&list, &settings, argc - operands, argv + operands, &error) == ATTN_OK ? parse_all(&list, &common)
                                                                                          : command_fail(usage.name, NULL, &error);
    if (exit < 0 && list.count == 0) exit = command_fail_missing(usage.name, "problem", usage.example);
    if (exit < 0 && check_flags(&common, &settings, &list, &error) != ATTN_OK) exit = command_fail(usage.name, NULL, &error);
    if (exit < 0) exit = bench(&common, &settings, &list);
    problems_free(&list);
    return exit;
}
