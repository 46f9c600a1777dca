/* SPDX-License-Identifier: MIT
 * make.c - `attn make`: random tensors of a problem string, in a file that `attn run` computes. */
#include "make.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "cli/input/labels.h"
#include "cli/input/listed.h"
#include "testing/problem/linear_problem.h"
#include "testing/text/failure.h"
#include "testing/text/nearest.h"
#include "testing/text/shown.h"

typedef struct make_settings {
    const char *output, *only, *tokens;
} make_settings;

static const option_row rows[] = {
    {"output", 'o', "FILE", "output file: .safetensors, .npz, .npy; - prints it (required)",
     OUTPUT(make_settings, output, ".safetensors, .npz or .npy"), .needed = "output file (-o - prints the numbers)"},
    {"only", 0, "NAME", "write this tensor alone, as .npy needs it", TEXT(make_settings, only)},
    {"tokens", 0, "FILE", "one token per line, for the metadata", TEXT(make_settings, tokens)},
    {0},
};

static const command_usage usage = {
    .name = "make",
    .synopsis = "PROBLEM -o FILE [options]",
    .summary = "Writes random tensors of a problem string (attn explain --help): q, k, v and all that its\n"
               "options need (mask, bias, lengths, slopes, sinks, tables, gradients, tangents, scales,\n"
               "decays, ...), with the string in the metadata, and prints the line of attn run that\n"
               "computes it. The same string and seed give the same bits on every machine, and the\n"
               "same tensors as attn check PROBLEM has.\n",
    .notes = "The words fill, plant, poison, biastype and index of attn check choose other numbers.\n"
             "\n"
             "Examples:\n"
             "  attn make fwd:f32:hq2:sq5:d8:causal -o in.npz\n"
             "  attn make bwd:f32:b2:hq4:sq64:d16:bias:lens -o in.safetensors --seed=3\n"
             "  attn make fwd:f32:sq5:d8 -o q.npy --only=q\n",
    .operands = {"problem string"},
    .example = "attn make fwd:f32:hq2:sq5:d8:causal -o in.npz",
    .without = "threads isa",
    .word = problem_word_name,
};

/* The problem string as it is kept, and the case that it names. */
static attn_status read_problem(const char *text, const common_settings *common, check_case *c, char canonical[CASE_TEXT],
                                attn_error *error)
{
    attn_status status = case_parse(text, c, error);
    if (status != ATTN_OK) return status;
    if (c->spec.seed && common->seed && c->spec.seed != common->seed)
        return failure(error, ATTN_ERR_ARGUMENT, "seed=%" PRIu64 " and --seed=%" PRIu64 " differ; give one of them", c->spec.seed,
                       common->seed);
    if (common->seed) c->spec.seed = common->seed;
    const int of_check = c->fill || c->poison || c->plant || c->memory || c->o_dtype || c->bias_dtype || c->index32;
    if (linear_problem_is(&c->spec) && of_check)
        return failure(error, ATTN_ERR_ARGUMENT,
                       "linear attention takes no words of checks, such as fill, poison, plant and memory");
    case_print(c, canonical, CASE_TEXT);
    return ATTN_OK;
}

static attn_status keep_only(attn_archive *archive, const char *name, attn_error *error)
{
    char hint[120];
    nearest near;
    nearest_init(&near, name);
    if (!attn_archive_find(archive, name)) {
        for (int64_t k = 0; k < attn_archive_count(archive); k++) nearest_offer(&near, attn_archive_at(archive, k)->name);
        nearest_print(&near, "", hint, sizeof hint);
        return failure(error, ATTN_ERR_ARGUMENT, "--only=%.60s: the problem has no such tensor%s", name, hint);
    }
    for (int64_t k = attn_archive_count(archive) - 1; k >= 0; k--) {
        const char *other = attn_archive_at(archive, k)->name;
        if (strcmp(other, name) != 0) (void)attn_archive_remove(archive, other, NULL);
    }
    return ATTN_OK;
}

static attn_status add_tokens(attn_archive *archive, const char *path, const attn_shape *shape, attn_error *error)
{
    token_list list = {0};
    attn_status status = labels_read_file(&list, path, error);
    if (status == ATTN_OK && list.count != shape->len_q && list.count != shape->len_kv)
        status = failure(error, ATTN_ERR_SHAPE, "%.100s: %" PRId64 " tokens for %" PRId64 " queries and %" PRId64 " keys", path,
                         list.count, shape->len_q, shape->len_kv);
    if (status == ATTN_OK) status = labels_write(archive, &list, 1, error);
    for (int64_t k = 0; k < list.count; k++) free(list.word[k]);
    free(list.word);
    return status;
}

static char *compose_json(const attn_archive *archive, const char *problem, const char *path, const char *line)
{
    cJSON *object = json_begin();
    json_text(object, "problem", problem);
    json_text(object, "output", path);
    json_text(object, "run", line);
    json_text(object, "version", attn_version());
    cJSON *written = json_list(object, "written");
    for (int64_t k = 0; k < attn_archive_count(archive); k++) listed_json(written, NULL, attn_archive_at(archive, k));
    return json_compose(object);
}

static attn_status make(const char *text, const make_settings *settings, const common_settings *common, attn_error *error)
{
    check_case c;
    char problem[CASE_TEXT];
    attn_archive *archive = NULL;
    text_buffer line = {0};
    attn_status status = file_check_distinct(settings->output, settings->tokens, error);
    if (status != ATTN_OK) return status;
    status = read_problem(text, common, &c, problem, error);
    if (status == ATTN_OK) status = attn_archive_create(&archive, error);
    if (status == ATTN_OK)
        status = linear_problem_is(&c.spec) ? make_linear(archive, &c.spec, error) : make_attention(archive, &c, error);
    if (status != ATTN_OK) failure_about(error, text);
    if (status == ATTN_OK && settings->only) status = keep_only(archive, settings->only, error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(archive, "attn_problem", problem, error);
    if (status == ATTN_OK && settings->tokens) status = add_tokens(archive, settings->tokens, &c.spec.shape, error);
    if (status == ATTN_OK) {
        make_line(&line, &c.spec, settings->output);
        status = text_status(&line, "the line of attn run", error);
    }
    char *json = status == ATTN_OK && common->json ? compose_json(archive, problem, settings->output, line.bytes) : NULL;
    status = file_finish(status, archive, settings->output, json, error);
    if (status == ATTN_OK && !common->json && !common->quiet && !common->prints_numbers && !settings->only) {
        put_shown(stdout, line.bytes);
        putchar('\n');
    }
    text_free(&line);
    attn_archive_destroy(archive);
    return status;
}

int attn_cmd_make(int argc, char **argv)
{
    common_settings common = {0};
    make_settings settings = {0};
    const option_group groups[] = {{"Output", rows, &settings}, {0}};
    attn_error error;
    int operand, exit = options_begin(&usage, groups, &common, argc, argv, 1, &operand);
    if (exit >= 0) return exit;
    return command_end(make(argv[operand], &settings, &common, &error), usage.name, NULL, &error);
}
