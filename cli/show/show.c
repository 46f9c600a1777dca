/* SPDX-License-Identifier: MIT
 * show.c - `attn show`: what is in a file: shapes, types, metadata, figures and numbers, and how far two files are from each other.
 */
#include "show.h"

#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/options.h"
#include "cli/base/tensor_file.h"
#include "cli/input/find.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"

typedef struct show_settings {
    const char *diff;
    int all, csv;
} show_settings;

static const option_row rows[] = {
    {"diff", 0, "OTHER", "compare with this file; status 1 if they differ", TEXT(show_settings, diff)},
    {"all", 0, NULL, "print every number of a large tensor", FLAG(show_settings, all)},
    {"csv", 0, NULL, "print CSV: a matrix, or a line for each tensor", FLAG(show_settings, csv)},
    {0},
};

static const command_usage usage = {
    .name = "show",
    .synopsis = "FILE [TENSOR[SLICE]] [options]",
    .summary = "Prints the shapes, types and metadata of a file (.safetensors, .npz, .npy, .gguf, .csv,\n"
               ".json), and smallest, largest, mean and norm (the root of the sum of squares) of the finite\n"
               "numbers of each tensor, with how many are NaN or infinite; of one TENSOR its numbers too.\n",
    .notes = "A SLICE is NumPy's: q[0], q[0,3,:4], q[...,-1], q[:,::2]. With --diff, errors are absolute,\n"
             "relative to OTHER, and in units in the last place of the type with fewer digits, each\n"
             "with its place and both numbers; NaN equals NaN, and 0 equals -0.\n"
             "\n"
             "Examples:\n"
             "  attn run IN.safetensors -o out.safetensors --weights\n"
             "  attn show out.safetensors\n"
             "  attn show out.safetensors \"weights[0,3,:4]\"\n"
             "  attn show out.safetensors \"o[0,3]\" --csv >o.csv\n"
             "  attn run IN.safetensors -o again.safetensors --weights --threads=1\n"
             "  attn show out.safetensors --diff=again.safetensors\n",
    .operands = {"file"},
    .example = "attn show out.npz",
    .without = "threads isa seed",
};

/* ---- the command ---- */

static attn_status find_tensor(const attn_archive *file, const char *path, const selection *chosen, tensor_view *v,
                               attn_error *error)
{
    const attn_archive_tensor *t = attn_archive_find(file, chosen->name);
    char hint[120], names[100];
    nearest near;
    if (t) {
        *v = tensor_view_of(t);
        return slice_view(v, chosen->slice, error);
    }
    nearest_init(&near, chosen->name);
    for (int64_t k = 0; k < attn_archive_count(file); k++) nearest_offer(&near, attn_archive_at(file, k)->name);
    nearest_print(&near, "", hint, sizeof hint);
    input_list(file, names, sizeof names);
    return failure(error, ATTN_ERR_ARGUMENT, "%.80s: no tensor '%.40s'%s (available: %s)", path, chosen->name, hint, names);
}

static attn_status show_one(const char *path, const attn_archive *file, const selection *chosen, const show_settings *s, int json,
                            attn_error *error)
{
    tensor_view v;
    attn_status status = find_tensor(file, path, chosen, &v, error);
    if (status != ATTN_OK) return status;
    if (json) return json_file(path, file, &v, error);
    if (s->csv) return csv_view(&v, chosen->name, error);
    print_figures(chosen->word, &v);
    tensor_view_print(stdout, &v, s->all);
    return ATTN_OK;
}

/* The exit status: 0, 1 if they differ, or that of an error. */
static int show_diff(const char *path, const attn_archive *file, const selection *chosen, const show_settings *s, int json)
{
    attn_error error;
    attn_archive *other = NULL;
    tensor_text how = {NULL, ATTN_F64, 0};
    if (s->csv || s->all) {
        failure(&error, ATTN_ERR_ARGUMENT, "--%s has no effect with --diff, which prints no other numbers", s->csv ? "csv" : "all");
        return command_fail(usage.name, NULL, &error);
    }
    if (tensor_file_open(&other, s->diff, &how, &error) != ATTN_OK) return command_fail(usage.name, NULL, &error);
    cJSON *object = json ? json_begin() : NULL;
    if (json) json_text(object, "file", path), json_text(object, "other", s->diff);
    const int different = show_differences(file, other, chosen, path, s->diff, object, &error);
    if (object) json_int(object, "different", different);
    if (different >= 0 && object) json_end(object);
    else cJSON_Delete(object);
    attn_archive_destroy(other);
    return different < 0 ? command_fail(usage.name, NULL, &error) : different ? EXIT_CHECK : EXIT_DONE;
}

static int check_flags(const show_settings *s, const common_settings *common, const char *word)
{
    attn_error error;
    const char *both = s->csv && common->json ? "--csv and --json are two ways to print the same; give one of them" : NULL;
    if (!both && s->all && (s->csv || common->json)) both = "--all has no effect: --csv and --json print every number";
    if (!both && s->all && !word && !s->diff) both = "--all needs a TENSOR, whose numbers are printed";
    if (!both) return EXIT_DONE;
    failure(&error, ATTN_ERR_ARGUMENT, "%s", both);
    return command_fail(usage.name, NULL, &error);
}

int attn_cmd_show(int argc, char **argv)
{
    common_settings common = {0};
    show_settings settings = {0};
    const option_group groups[] = {{"What is shown", rows, &settings}, {0}};
    attn_error error;
    attn_archive *file = NULL;
    tensor_text how = {NULL, ATTN_F64, 0};
    int operand, exit = options_begin(&usage, groups, &common, argc, argv, 2, &operand);
    if (exit >= 0) return exit;
    const char *path = argv[operand], *word = operand + 1 < argc ? argv[operand + 1] : NULL;
    exit = check_flags(&settings, &common, word);
    if (exit != EXIT_DONE) return exit;
    if (tensor_file_open(&file, path, &how, &error) != ATTN_OK) return command_fail(usage.name, NULL, &error);
    selection chosen = selection_of(word, file);
    attn_status status = ATTN_OK;
    if (settings.diff) exit = show_diff(path, file, &chosen, &settings, common.json);
    else if (word) status = show_one(path, file, &chosen, &settings, common.json, &error);
    else if (common.json) status = json_file(path, file, NULL, &error);
    else if (settings.csv) csv_file(file);
    else print_file(path, file);
    free(chosen.name);
    attn_archive_destroy(file);
    return status == ATTN_OK ? exit : command_fail(usage.name, NULL, &error);
}
