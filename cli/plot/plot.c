/* SPDX-License-Identifier: MIT
 *
 * plot.c - `attn plot`: pictures of the output of other commands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "kinds.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/nearest.h"
#include "testing/text/shown.h"

enum { MAX_FILES = 8 };

static const plot_kind kinds[] = {
    {"weights", "weights", "a head's weights, with tokens on both axes", 1, "layer head entry tensor high", plot_weights},
    {"heads", "weights", "all heads side by side", 1, "layer head entry tensor high", plot_heads},
    {"steps", "q, scores, weights, o", "from queries to outputs; IN2 may have q", MAX_FILES, "layer head entry", plot_steps},
    {"compare", "weights of each", "a head under several metrics or mechanisms, a file each", MAX_FILES,
     "layer head entry query tensor high", plot_compare},
    {"entropy", "entropy, or weights", "the distribution of the entropies of rows", 1, "layer head entry", plot_entropy},
    {"roles", "attn analyze's JSON", "what each head does, by layer and head (--roles)", 1, "entry", plot_roles},
    {"temperature", "scores", "entropy and weights by temperature", 1, "layer head entry query tensor", plot_temperature},
    {"gradients", "dq, dk, dv, or JSON", "gradients, and their norms", 1, "layer head entry", plot_gradients},
    {"mask", "mask", "which query sees which key", 1, "layer head entry tensor", plot_mask},
    {"hopfield", "attn hopfield's -o or JSON", "energies and trajectories of states", 1, "", plot_hopfield},
    {"loss", "attn train's -o", "the loss of each step", 1, "", plot_loss},
    {"runtime", "attn bench's JSON or .csv", "time and memory by length, with n and n^2", 1, "", plot_runtime},
    {"latency", "attn bench's JSON", "how long single calls take", 1, "", plot_latency},
    {"scaling", "attn-mpi bench's JSON", "speed-up and efficiency by ranks, time in messages", 1, "", plot_scaling},
    {"peers", "a file of bench/results", "how much longer other libraries take", 1, "", plot_peers},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char *kind_name(int n) { return n < KINDS ? kinds[n].name : NULL; }

static void print_kinds(void)
{
    printf("\nKinds, and what they read:\n");
    for (int k = 0; k < KINDS; k++) printf("  %-12s %-27s %s\n", kinds[k].name, kinds[k].files, kinds[k].help);
}

static const command_usage usage = {
    .name = "plot",
    .without = "threads isa seed",
    .synopsis = "KIND IN... -o OUT.svg [options]",
    .summary = "Draws what the other commands wrote, as one self-contained .svg or .html file for light\n"
               "and dark screens. Hovering shows values.\n",
    .notes = "In a picture of one head, --layer, --head and --entry choose it (default: the first).\n"
             "\n"
             "Examples:\n"
             "  attn run IN.safetensors -o out.safetensors --weights --scores=biased --entropy\n"
             "  attn plot weights out.safetensors -o head.svg --layer 3 --head 1\n"
             "  attn plot temperature out.safetensors -o temperature.html\n"
             "  attn run IN.safetensors -o cosine.safetensors --weights --score=cosine\n"
             "  attn plot compare out.safetensors cosine.safetensors -o metrics.svg\n"
             "  attn analyze IN.safetensors --roles --json >roles.json\n"
             "  attn plot roles roles.json -o roles.svg\n"
             "  attn mask longformer/8/2 -n 64 -o mask.safetensors\n"
             "  attn plot mask mask.safetensors -o mask.svg\n"
             "  attn bench fwd:f32:sq512:d64 fwd:f32:sq2048:d64 --json >times.json\n"
             "  attn plot runtime times.json -o times.svg\n",
    .more = print_kinds,
    .word = kind_name,
    .operands = {"kind of picture", "input file"},
    .example = "attn plot weights OUT.safetensors -o weights.svg",
};

/* ---- options ---- */

static attn_status set_high(void *target, const char *name, const char *value, attn_error *error)
{
    plot_settings *s = target;
    s->high = 0;
    if (strcmp(value, "max") == 0 || option_real(name, value, 1, 0, &s->high, error) == ATTN_OK) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not a number above 0, or max", name, value);
}

static const option_row plot_options[] = {
    {"output", 'o', "FILE", "output file: .svg or .html (required)", OUTPUT(plot_settings, output, ".svg or .html"),
     .needed = "output file"},
    {"title", 0, "TEXT", "the title (default: what is shown)", TEXT(plot_settings, title)},
    {"layer", 0, "LIST", "these layers, such as 0,3-5", TEXT(plot_settings, layers)},
    {"head", 0, "LIST", "these heads", TEXT(plot_settings, heads)},
    {"entry", 0, "N", "this batch entry (default: 0)", WHOLE(plot_settings, entry, 0, INT64_MAX)},
    {"query", 0, "N", "the query of temperature and compare (default: the last)", WHOLE(plot_settings, query, 0, INT64_MAX)},
    {"tensor", 0, "NAME", "this tensor instead of the kind's own", TEXT(plot_settings, tensor)},
    {"high", 0, "X", "the upper end of a scale of weights (default: 1), or max", CALL(set_high)},
    {0},
};

/* ---- the command ---- */

static const plot_kind *find_kind(const char *name, attn_error *error)
{
    nearest near;
    char hint[120];
    nearest_init(&near, name);
    for (int k = 0; k < KINDS; k++) {
        if (strcmp(kinds[k].name, name) == 0) return &kinds[k];
        nearest_offer(&near, kinds[k].name);
    }
    nearest_print(&near, "", hint, sizeof hint);
    failure(error, ATTN_ERR_ARGUMENT, "unknown kind '%.40s'%s; `attn plot --help` lists them", name, hint);
    return NULL;
}

/* Rejects a flag that the kind does not read. */
static attn_status check_flags(const plot_kind *kind, const plot_settings *s, attn_error *error)
{
    const struct {
        const char *name;
        int given;
    } flags[] = {{"layer", s->layers != NULL}, {"head", s->heads != NULL},    {"entry", s->entry >= 0},
                 {"query", s->query >= 0},     {"tensor", s->tensor != NULL}, {"high", s->high >= 0}};
    for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
        char kinds_with[120] = "";
        if (!flags[f].given || options_has_word(kind->takes, flags[f].name)) continue;
        for (int k = 0; k < KINDS; k++)
            if (options_has_word(kinds[k].takes, flags[f].name))
                snprintf(kinds_with + strlen(kinds_with), sizeof kinds_with - strlen(kinds_with), "%s%s", *kinds_with ? ", " : "",
                         kinds[k].name);
        return failure(error, ATTN_ERR_ARGUMENT, "--%s has no effect on a picture of kind %s; it is for %s", flags[f].name,
                       kind->name, kinds_with);
    }
    return ATTN_OK;
}

static attn_status plot(const plot_kind *kind, char *const *paths, int count, const plot_settings *settings, attn_error *error)
{
    source sources[MAX_FILES] = {{0}};
    figure f;
    plot_task task = {.settings = settings, .sources = sources, .count = count, .figure = &f};
    attn_status status = check_flags(kind, settings, error);
    for (int k = 0; k < count && status == ATTN_OK; k++) status = file_check_distinct(settings->output, paths[k], error);
    if (status == ATTN_OK && count > kind->most)
        status = failure(error, ATTN_ERR_ARGUMENT, "%s takes %d file%s, not %d", kind->name, kind->most,
                         kind->most > 1 ? "s at most" : "", count);
    for (int k = 0; k < count && status == ATTN_OK; k++) status = source_open(&sources[k], paths[k], error);
    figure_begin(&f);
    if (status == ATTN_OK) status = kind->draw(&task, error);
    if (status == ATTN_OK) {
        const figure_words words = {settings->title ? settings->title : task.title, task.about[0] ? task.about : NULL, task.note};
        status = figure_write(&f, &words, settings->output, error);
    } else {
        figure_drop(&f);
    }
    for (int k = 0; k < count && k < MAX_FILES; k++) source_close(&sources[k]);
    return status;
}

static char *compose_json(const plot_kind *kind, const plot_settings *settings)
{
    cJSON *object = json_begin();
    json_text(object, "output", settings->output);
    json_text(object, "kind", kind->name);
    return json_compose(object);
}

int attn_cmd_plot(int argc, char **argv)
{
    common_settings common = {0};
    plot_settings settings = {.entry = -1, .query = -1, .high = -1};
    const option_group groups[] = {{"Picture", plot_options, &settings}, {0}};
    attn_error error;
    int operands;
    const int exit = options_begin(&usage, groups, &common, argc, argv, 1 + MAX_FILES, &operands);
    if (exit >= 0) return exit;
    const plot_kind *const kind = find_kind(argv[operands], &error);
    if (!kind) return command_fail(usage.name, NULL, &error);
    char *json = common.json ? compose_json(kind, &settings) : NULL;
    const attn_status status = plot(kind, argv + operands + 1, argc - operands - 1, &settings, &error);
    if (file_finish(status, NULL, NULL, json, &error) != ATTN_OK) return command_fail(usage.name, NULL, &error);
    if (options_tell(&common)) {
        printf("wrote ");
        put_shown(stdout, settings.output);
        printf("; open it in a browser\n");
    }
    return EXIT_DONE;
}
