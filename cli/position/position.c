/* SPDX-License-Identifier: MIT
 *
 * position.c - `attn position`: tables of positions, and positions put into tensors. */
#include "position.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/tensor_file.h"
#include "cli/input/roles.h"
#include "cli/input/small_tensor.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/nearest.h"

static const position_kind kinds[] = {
    {"sinusoidal", "table of sines and cosines; positions may come from IN", "positions", "channels", "tokens base pairs dtype",
     position_sinusoidal},
    {"slopes", "slopes of ALiBi", NULL, "heads", "dtype", position_slopes},
    {"frequencies", "frequencies of rotary positions, and their magnitude", NULL, "channels", "base scaling tokens",
     position_frequencies},
    {"buckets", "bucket of each distance, by --t5 or --clipped", NULL, "tokens", "keys offset t5 clipped", position_buckets},
    {"rotate", "y: x with its pairs of channels rotated", "x", "", "channels base pairs scaling tokens backward", position_rotate},
    {"add", "y: x plus the rows of table at its positions", "x, table, positions", "", "backward", position_add},
    {"resize", "y: table with another number of rows, interpolated", "table", "tokens", "backward", position_resize},
    {"bias", "bias [head, query, key] of bias_table, by --t5 or --clipped", "bias_table", "tokens",
     "keys offset t5 clipped backward", position_bias},
    {"gate", "gates of a bias, from the query (WavLM)", "q, w, b, a", "", "backward", position_gate},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const char *kind_name(int n) { return n < KINDS ? kinds[n].name : NULL; }

static void print_kinds(void)
{
    printf("\nKinds, and the tensors of IN that they read:\n");
    for (int k = 0; k < KINDS; k++)
        printf("  %-12s %-20s %s\n", kinds[k].name, kinds[k].reads ? kinds[k].reads : "", kinds[k].help);
}

static const command_usage usage = {
    .name = "position",
    .synopsis = "KIND [IN] [-o OUT] [options]",
    .summary = "Makes tables of positions, or puts positions into the tensors of IN. Results are\n"
               "printed as `attn show` does.\n",
    .notes = "With --backward, IN has the gradient of what the kind writes (dy, dbias or dgates), and OUT\n"
             "receives those of what it reads: dx, dtable, dbias_table, or dq, dw, db and da.\n"
             "\n"
             "Examples:\n"
             "  attn position sinusoidal --tokens=128 --channels=64 -o table.safetensors\n"
             "  attn position slopes --heads=12\n"
             "  attn position frequencies --channels=128 --scaling=yarn/4/2048\n"
             "  attn position rotate x.safetensors -o y.safetensors --pairs=halves\n"
             "  attn position buckets --tokens=8 --t5\n",
    .more = print_kinds,
    .word = kind_name,
    .without = "threads isa seed",
    .operands = {"kind"},
    .example = "attn position slopes --heads=12",
};

/* ---- options ---- */

static attn_status set_pairs(void *target, const char *name, const char *value, attn_error *error)
{
    position_settings *s = target;
    s->pairs_given = 1;
    return role_set_pairs(&s->pairs, name, value, error);
}

static attn_status set_scaling(void *target, const char *name, const char *value, attn_error *error)
{
    return role_read_scaling(name, value, target, error);
}

static attn_status set_dtype(void *target, const char *name, const char *value, attn_error *error)
{
    attn_dtype *dtype = target;
    *dtype = ATTN_F32;
    if (strcmp(value, "f32") == 0) return ATTN_OK;
    *dtype = ATTN_F64;
    if (strcmp(value, "f64") == 0) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "%s: '%.40s' is not f32 or f64", name, value);
}

static attn_status set_word(void *target, const char *name, const char *value, attn_error *error)
{
    return problem_set(target, name, value, error);
}

static const option_row position_options[] = {
    {"output", 'o', "FILE", "output file: .safetensors or .npz", OUTPUT(position_settings, output, ".safetensors or .npz")},
    {"tokens", 'n', "N", "tokens, queries, or rows", WHOLE(position_settings, tokens, 1, INT32_MAX)},
    {"keys", 'm', "N", "keys (default: as many as tokens)", WHOLE(position_settings, keys, 1, INT32_MAX)},
    {"offset", 0, "N", "query i is at the position of key i + N", WHOLE(position_settings, offset, -INT32_MAX, INT32_MAX)},
    {"channels", 0, "N", "channels; of rotate those that are rotated (default: all)",
     WHOLE(position_settings, channels, 1, INT32_MAX)},
    {"heads", 0, "N", "heads", WHOLE(position_settings, heads, 1, INT32_MAX)},
    {"base", 0, "B", "base of the frequencies (default: 10000)", ABOVE_0(position_settings, base, 0)},
    {"pairs", 0, "KIND", "channels of a pair: interleaved (default) or halves", CALL(set_pairs)},
    {"scaling", 0, "HOW", "linear/F, ntk/F, ntk-dynamic/F/L, yarn/F/L, llama3/F/L",
     CALL_ON(set_scaling, position_settings, scaling)},
    {"t5", 0, "[=KEYS]", "T5's buckets: both, causal, KEYS/BUCKETS/DISTANCE", CALL_ON(set_word, position_settings, spec)},
    {"clipped", 0, "N", "a bucket for each distance, the same for all beyond N", CALL_ON(set_word, position_settings, spec)},
    {"dtype", 0, "TYPE", "type of a table: f32 (default) or f64", CALL_ON(set_dtype, position_settings, dtype)},
    {"backward", 0, NULL, "gradients instead", FLAG(position_settings, backward)},
    {0},
};

/* ---- the command ---- */

static attn_status find_kind(const char *name, const position_kind **found, attn_error *error)
{
    nearest near;
    char hint[120];
    nearest_init(&near, name);
    for (int k = 0; k < KINDS; k++) {
        *found = &kinds[k];
        if (strcmp(kinds[k].name, name) == 0) return ATTN_OK;
        nearest_offer(&near, kinds[k].name);
    }
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "unknown kind '%.40s'%s; `attn position --help` lists them", name, hint);
}

static attn_status check_flags(const position_kind *kind, const position_settings *s, attn_error *error)
{
    const struct {
        const char *name;
        int given;
    } flags[] = {{"tokens", s->tokens != 0},         {"keys", s->keys != 0},
                 {"offset", s->offset != 0},         {"channels", s->channels != 0},
                 {"heads", s->heads != 0},           {"base", s->base > 0},
                 {"pairs", s->pairs_given},          {"scaling", s->scaling.struct_size != 0},
                 {"t5", s->spec.t5 != SPEC_T5_NONE}, {"clipped", s->spec.clipped != 0},
                 {"dtype", s->dtype != 0},           {"backward", s->backward}};
    for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
        const int needs = options_has_word(kind->needs, flags[f].name);
        if (needs && !flags[f].given) return failure(error, ATTN_ERR_ARGUMENT, "%s needs --%s", kind->name, flags[f].name);
        if (flags[f].given && !needs && !options_has_word(kind->takes, flags[f].name))
            return failure(error, ATTN_ERR_ARGUMENT, "--%s has no effect on %s; `attn position --help` lists what each kind is",
                           flags[f].name, kind->name);
    }
    return ATTN_OK;
}

static attn_status check_file(const position_kind *kind, const char *path, attn_error *error)
{
    if (path && !kind->reads)
        return failure(error, ATTN_ERR_ARGUMENT, "unexpected argument '%.80s'; %s reads no file", path, kind->name);
    if (!path && kind->reads && kind->run != position_sinusoidal)
        return failure(error, ATTN_ERR_ARGUMENT, "no input file; %s reads %s", kind->name, kind->reads);
    return ATTN_OK;
}

static char *compose_json(const position_work *w, const position_kind *kind)
{
    cJSON *object = json_begin();
    json_text(object, "kind", kind->name);
    small_tensor_json(w->out, json_list(object, "results"));
    if (w->settings->output) json_text(object, "output", w->settings->output);
    return json_compose(object);
}

int attn_cmd_position(int argc, char **argv)
{
    position_settings settings = {0};
    const option_group groups[] = {{"Positions", position_options, &settings}, {0}};
    position_work w = {.settings = &settings};
    const position_kind *kind;
    attn_error error;
    char *json = NULL;
    int operand;
    problem_init(&settings.spec);
    const int early = options_begin(&usage, groups, &settings.common, argc, argv, 2, &operand);
    if (early >= 0) return early;
    const char *path = argc - operand > 1 ? argv[operand + 1] : NULL;
    attn_status status = find_kind(argv[operand], &kind, &error);
    if (status == ATTN_OK) status = check_file(kind, path, &error);
    if (status == ATTN_OK) status = check_flags(kind, &settings, &error);
    if (status == ATTN_OK) status = file_check_distinct(settings.output, path, &error);
    if (status == ATTN_OK && path) status = tensor_file_open(&w.file, path, NULL, &error);
    if (status == ATTN_OK) status = attn_archive_create(&w.out, &error);
    if (status != ATTN_OK) return attn_archive_destroy(w.file), command_fail(usage.name, NULL, &error);
    status = kind->run(&w, &error);
    if (status != ATTN_OK && path) failure_about(&error, path);
    if (status == ATTN_OK && settings.common.json) json = compose_json(&w, kind);
    status = file_finish(status, w.out, settings.output, json, &error);
    if (status == ATTN_OK && !settings.common.json) small_tensor_print(w.out, &settings.common, settings.output);
    if (status == ATTN_OK) small_tensor_tell(&settings.common, settings.output);
    attn_archive_destroy(w.out);
    attn_archive_destroy(w.file);
    return command_end(status, usage.name, NULL, &error);
}
