/* SPDX-License-Identifier: MIT
 * check.c - `attn check`: every kernel of this CPU against the reference, or the cases of a conformance suite. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/options.h"
#include "cli/base/progress.h"
#include "foreign.h"
#include "testing/case/sweep.h"
#include "testing/problem/tensors.h"
#include "testing/text/failure.h"
#include "testing/verdict/linear.h"
#include "testing/verdict/product.h"
#include "testing/verdict/report.h"
#include "testing/verdict/run.h"

typedef struct check_options {
    const char *conformance;
    int thorough, quick;
    int64_t part, parts; /* only the cases numbered part - 1, part - 1 + parts, ... */
} check_options;

/* --part=K/N */
static attn_status set_part(void *target, const char *name, const char *value, attn_error *error)
{
    check_options *own = target;
    const size_t digits = strcspn(value, "/");
    char part[8];
    attn_error unused;
    snprintf(part, sizeof part, "%.*s", (int)digits, value);
    if (digits < sizeof part && value[digits] && option_int(name, value + digits + 1, 1, 1000, &own->parts, &unused) == ATTN_OK &&
        option_int(name, part, 1, own->parts, &own->part, &unused) == ATTN_OK)
        return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not K/N, the K-th of N parts, with N up to 1000", name, value);
}

static const option_row rows[] = {
    {"conformance", 0, "DIR", "run a directory of suites, or one suite (in a build tree only)", TEXT(check_options, conformance)},
    {"thorough", 0, NULL, "ten times as many cases", FLAG(check_options, thorough)},
    {"quick", 0, NULL, "every fourth case", FLAG(check_options, quick)},
    {"part", 0, "K/N", "only the K-th of N parts of the cases, for N machines", CALL(set_part)},
    {0},
};

static const command_usage usage = {
    .name = "check",
    .synopsis = "[PROBLEM...] [options]",
    .summary = "Runs every kernel of this CPU on the problems, and compares each number with the\n"
               "reference in double precision under a derived bound of its rounding error. Without\n"
               "a PROBLEM: on several thousand cases that cover every tile remainder, head size,\n"
               "option, storage type and hostile number: forward, backward, forward mode, double\n"
               "backward, linear attention and products of matrices.\n",
    .notes = "A problem string may also have these words:\n"
             "  fill=KIND     numbers: normal, uniform, huge, equal, onehot, zero, denormal, rising,\n"
             "                falling, spread\n"
             "  poison=KIND   values where no query looks: nan, inf, ones, signal\n"
             "  plant=TENSOR  a few NaN in visible places of q, k, v, bias; they must propagate\n"
             "  memory=KIND   strides: dense, padded, backward, broadcast, mixed\n"
             "  otype= biastype=TYPE   storage of o and of the bias that differs from that of q\n"
             "  index=i32     lengths and offsets in 32 bits\n"
             "Linear attention takes none of these; it is checked in each of its forms.\n"
             "--invariant applies to the forward passes among the cases; --reproducible skips what it\n"
             "does not support, such as linear attention.\n"
             "A problem that the library rejects is an error, as in attn bench; kernels whose instructions\n"
             "this CPU lacks are skipped.\n"
             "Example: attn check fwd:f32:sq33:skv65:d64:causal:fill=huge:poison=nan\n"
             "A failure prints such a problem: `attn check PROBLEM` reproduces it.\n",
    .word = problem_word_name,
};

/* A row of kernels.def and its results. */
typedef struct kernel_row {
    attn_kernel_description about;
    int64_t cases, failed;
    double worst; /* fraction of the bound */
    char worst_case[CASE_TEXT];
} kernel_row;

enum { ROWS = 64 };

typedef struct checker {
    kernel_row rows[ROWS];
    int count;
    report report;
    const common_settings *settings;
    int64_t counted; /* cases of the sweep so far, in whichever part */
} checker;

/* 1 if the next case of the sweep is in the part that is checked. */
static int in_part(checker *k, const check_options *own) { return own->parts == 0 || k->counted++ % own->parts == own->part - 1; }

/* The kernels, all or those of one instruction set. */
static void list_kernels(checker *k)
{
    for (int i = 0; k->count < ROWS; i++) {
        kernel_row *row = &k->rows[k->count];
        row->about.struct_size = sizeof row->about;
        if (attn_kernel_describe(i, &row->about, NULL) != ATTN_OK) break;
        if (k->settings->isa != ATTN_ISA_DEFAULT && k->settings->isa != row->about.isa) continue;
        k->count++;
        if (row->about.usable) continue;
        char reason[160];
        snprintf(reason, sizeof reason, "this CPU lacks some of: %s", row->about.needs);
        report_add(&k->report,
                   &(report_entry){.suite = "kernels", .name = row->about.name, .reason = reason, .status = CHECK_SKIPPED});
    }
}

/* The row of the kernel that ran: forward kernels of one instruction set share the cases, as the plan chooses. */
static kernel_row *row_of(checker *k, const char *name, kernel_row *otherwise)
{
    for (int i = 0; i < k->count; i++)
        if (strcmp(k->rows[i].about.name, name) == 0) return &k->rows[i];
    return otherwise;
}

static attn_options options_of(const checker *k, const kernel_row *row, int threads)
{
    attn_options options = options_for_library(k->settings);
    options.isa = row->about.isa;
    options.threads = threads;
    return options;
}

/* On one kernel; *error tells why the library rejects it.  Returns 1 if it ran. */
static int check_on_row(checker *k, kernel_row *row, check_call *call, const check_case *c, attn_error *error)
{
    char text[CASE_TEXT];
    check_result result;
    const int threads = k->settings->threads ? k->settings->threads : 1 + (int)(c->spec.seed % 3);
    check_run(&result, call, c, &(check_setting){.options = options_of(k, row, threads)});
    case_print(c, text, sizeof text);
    row = row_of(k, result.kernel, row);
    row->cases++;
    row->failed += result.status == CHECK_FAILED;
    if (result.status == CHECK_PASSED && result.numbers.fraction >= row->worst) {
        row->worst = result.numbers.fraction;
        snprintf(row->worst_case, sizeof row->worst_case, "%s", text);
    }
    report_add(&k->report, &(report_entry){.suite = "kernels",
                                           .name = row->about.name,
                                           .problem = text,
                                           .reason = result.reason,
                                           .status = result.status,
                                           .max_error = result.numbers.error,
                                           .bound_fraction = result.numbers.fraction});
    if (result.status != CHECK_SKIPPED) return 1;
    failure(error, ATTN_ERR_UNSUPPORTED, "%s", result.reason);
    return 0;
}

/* One case on every kernel of its compute type.  *error reports wrong sizes and unsupported options, of a case that is `given`
 * also that each kernel rejects it: then nothing was checked.  (--reproducible skips what it does not support.) */
static attn_status check_case_on_all(checker *k, const check_case *c, int given, attn_error *error)
{
    check_call call;
    int ran = 0, rejected = 0;
    const attn_status status = check_call_create(&call, c, error);
    if (status != ATTN_OK) return status;
    for (int i = 0; i < k->count; i++) {
        kernel_row *row = &k->rows[i];
        const attn_kernel_description *about = &row->about;
        if (!about->usable || about->decode || about->compute != call.expected.compute || about->op != call.problem.op) continue;
        if (check_on_row(k, row, &call, c, rejected ? NULL : error)) ran++;
        else rejected++;
    }
    check_call_destroy(&call);
    return given && rejected > 0 && ran == 0 && !k->settings->reproducible ? ATTN_ERR_UNSUPPORTED : ATTN_OK;
}

/* The largest tile among the usable kernels. */
static sweep_tile largest_tile(const checker *k)
{
    sweep_tile tile = {1, 1};
    for (int i = 0; i < k->count; i++) {
        if (!k->rows[i].about.usable || k->rows[i].about.op != ATTN_FORWARD) continue;
        attn_problem p = {.struct_size = sizeof p, .shape = {1, 1, 1, 4096, 4096, 64, 64}};
        attn_tensors needed = tensors_needed(ATTN_FORWARD);
        needed.q.dtype = k->rows[i].about.compute;
        const attn_options options = {.struct_size = sizeof options, .isa = k->rows[i].about.isa, .threads = 1};
        attn_plan_description about = {.struct_size = sizeof about};
        attn_plan *plan = NULL;
        if (attn_plan_create(&plan, &p, &needed, &options, NULL) == ATTN_OK && attn_plan_describe(plan, &about, NULL) == ATTN_OK) {
            if (about.tile_q > tile.tile_q) tile.tile_q = about.tile_q;
            if (about.block_kv > tile.block_kv) tile.block_kv = about.block_kv;
        }
        attn_plan_destroy(plan);
    }
    return tile;
}

/* all: also kernels without a case, which a sweep should not leave; given problems run on a few kernels only. */
static void print_rows(const checker *k, int all)
{
    double worst = 0;
    for (int i = 0; i < k->count; i++) {
        const kernel_row *row = &k->rows[i];
        if (!all && row->cases == 0) continue;
        if (!row->about.usable) {
            printf("%-22s skipped: needs %s\n", row->about.name, row->about.needs);
            continue;
        }
        printf("%-24s %6" PRId64 " case%s, %" PRId64 " failed, largest error %.3f of the bound\n", row->about.name, row->cases,
               row->cases == 1 ? "" : "s", row->failed, row->worst);
        if (row->worst_case[0]) printf("%-22s %s\n", "", row->worst_case);
        if (row->worst > worst) worst = row->worst;
    }
    printf("largest error of all: %.3f of the bound\n", worst);
}

static void add_skipped(checker *k, kernel_row *row, const char *problem, const attn_error *why)
{
    row->cases++;
    report_add(
        &k->report,
        &(report_entry){
            .suite = "kernels", .name = row->about.name, .problem = problem, .reason = why->message, .status = CHECK_SKIPPED});
}

/* Linear attention, on every kernel of its compute type. */
static attn_status check_linear_on_all(checker *k, const problem_spec *spec, attn_error *error)
{
    const attn_dtype compute = spec->dtype == SPEC_F64 ? ATTN_F64 : ATTN_F32;
    char text[CASE_TEXT];
    problem_print(spec, text, sizeof text);
    for (int i = 0; i < k->count; i++) {
        kernel_row *row = &k->rows[i];
        linear_verdict v;
        if (!row->about.usable || row->about.op != ATTN_LINEAR || row->about.compute != compute) continue;
        const attn_options options = options_of(k, row, k->settings->threads);
        const attn_status status = check_linear(spec, &options, &v, error);
        if (status == ATTN_ERR_UNSUPPORTED && options.reproducible) {
            add_skipped(k, row, text, error);
            continue;
        }
        if (status != ATTN_OK) return status;
        row->cases++;
        row->failed += v.status == CHECK_FAILED;
        if (v.status == CHECK_PASSED && v.bound_fraction >= row->worst) {
            row->worst = v.bound_fraction;
            snprintf(row->worst_case, sizeof row->worst_case, "%s", text);
        }
        report_add(&k->report, &(report_entry){.suite = "kernels",
                                               .name = row->about.name,
                                               .problem = text,
                                               .reason = v.reason,
                                               .status = v.status,
                                               .max_error = v.max_error,
                                               .bound_fraction = v.bound_fraction});
    }
    return ATTN_OK;
}

/* Products of matrices, on every kernel that has them; their cases are always the same. */
static attn_status check_products_on_all(checker *k, const check_options *own, attn_error *error)
{
    const int step = own->quick ? 7 : 1;
    ref_matrices product;
    for (int i = 0; i < k->count; i++) {
        kernel_row *row = &k->rows[i];
        if (!row->about.usable || row->about.op != ATTN_PRODUCT) continue;
        for (int n = 0; product_case(n, &product); n += step) {
            product_verdict v;
            if (!in_part(k, own)) continue;
            const int threads = k->settings->threads ? k->settings->threads : 1 + n % 3;
            const attn_options options = options_of(k, row, threads);
            const attn_status status = product_check(&product, row->about.compute, &options, &v, error);
            if (status == ATTN_ERR_UNSUPPORTED && options.reproducible) {
                add_skipped(k, row, v.name, error);
                continue;
            }
            if (status != ATTN_OK) return status;
            const int passed = v.bound_fraction <= 1;
            row->cases++;
            row->failed += !passed;
            if (passed && v.bound_fraction >= row->worst) {
                row->worst = v.bound_fraction;
                snprintf(row->worst_case, sizeof row->worst_case, "%s", v.name);
            }
            report_add(&k->report, &(report_entry){.suite = "kernels",
                                                   .name = row->about.name,
                                                   .problem = v.name,
                                                   .reason = passed ? "" : "an element is off by more than its bound",
                                                   .status = passed ? CHECK_PASSED : CHECK_FAILED,
                                                   .max_error = v.max_error,
                                                   .bound_fraction = v.bound_fraction});
        }
    }
    return ATTN_OK;
}

static int is_linear(const problem_spec *spec) { return spec->op == SPEC_LINEAR || spec->op == SPEC_LINEAR_BACKWARD; }

static int check_sweep(checker *k, const check_options *own)
{
    sweep cases;
    attn_error error;
    if (!sweep_create(&cases, largest_tile(k), k->settings->seed + 1, own->thorough)) {
        failure(&error, ATTN_ERR_MEMORY, "cannot allocate memory for the list of cases");
        return command_fail("check", NULL, &error);
    }
    progress bar;
    attn_status status = ATTN_OK;
    progress_begin(&bar, "check", k->settings->quiet);
    for (int64_t n = 0; n < cases.count && status == ATTN_OK; n += own->quick ? 4 : 1) {
        progress_show(&bar, n, cases.count);
        if (in_part(k, own)) status = check_case_on_all(k, &cases.cases[n], 0, &error);
    }
    progress_end(&bar);
    sweep_destroy(&cases);
    for (int n = 0; check_linear_problem(n) && status == ATTN_OK; n++) {
        problem_spec spec;
        status = problem_parse(check_linear_problem(n), &spec, &error);
        spec.seed = k->settings->seed + 1;
        if (status == ATTN_OK && in_part(k, own)) status = check_linear_on_all(k, &spec, &error);
    }
    if (status == ATTN_OK) status = check_products_on_all(k, own, &error);
    return command_end(status, "check", NULL, &error);
}

static int check_problems(checker *k, int count, char **texts)
{
    attn_error error;
    for (int i = 0; i < count; i++) {
        check_case c;
        problem_spec spec;
        const int linear = problem_parse(texts[i], &spec, NULL) == ATTN_OK && is_linear(&spec);
        attn_status status = linear ? ATTN_OK : case_parse(texts[i], &c, &error);
        if (status == ATTN_OK && !linear && is_linear(&c.spec))
            status = failure(&error, ATTN_ERR_ARGUMENT,
                             "linear attention takes no words of checks, such as fill, poison, plant and memory");
        if (status == ATTN_OK) status = options_check_bits(k->settings, linear ? &spec : &c.spec, &error);
        if (status == ATTN_OK && linear) status = check_linear_on_all(k, &spec, &error);
        if (status == ATTN_OK && !linear) status = check_case_on_all(k, &c, 1, &error);
        if (status != ATTN_OK) return command_fail("check", texts[i], &error);
    }
    return EXIT_DONE;
}

int attn_cmd_check(int argc, char **argv)
{
    static checker k;                /* too large for a stack */
    static common_settings settings; /* k keeps its address */
    check_options own = {0};
    attn_error error;
    int first;
    const option_group groups[] = {{"Checks", rows, &own}, {"Plan", bits_options, &settings}, {0}};
    const int early = options_begin(&usage, groups, &settings, argc, argv, argc, &first);
    if (early >= 0) return early;
    if (own.conformance && first < argc) {
        failure(&error, ATTN_ERR_ARGUMENT, "--conformance runs the cases of a directory, and takes no problem (%.60s)",
                argv[first]);
        return command_fail("check", NULL, &error);
    }

    if (own.conformance && (settings.invariant || settings.reproducible)) {
        failure(&error, ATTN_ERR_ARGUMENT, "--conformance has neither --invariant nor --reproducible");
        return command_fail("check", NULL, &error);
    }

    if (own.quick && own.thorough) {
        failure(&error, ATTN_ERR_ARGUMENT, "--quick and --thorough set different numbers of cases; give only one");
        return command_fail("check", NULL, &error);
    }

    if (own.parts && (own.conformance || first < argc)) {
        failure(&error, ATTN_ERR_ARGUMENT, "--part divides the cases of a whole check; it takes no problem and no --conformance");
        return command_fail("check", NULL, &error);
    }

    if (own.conformance) {
        foreign_run(own.conformance, &settings, &error); /* returns only on failure */
        return command_fail("check", NULL, &error);
    }
    report_begin(&k.report, settings.json);
    k.settings = &settings;
    list_kernels(&k);
    const int status = first < argc ? check_problems(&k, argc - first, argv + first) : check_sweep(&k, &own);
    if (status != EXIT_DONE) return status;
    if (!settings.json) print_rows(&k, first == argc);
    return report_end(&k.report);
}
