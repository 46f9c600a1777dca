/* SPDX-License-Identifier: MIT
 *
 * view.c - `attn view`: all heads of a file as one page for a browser (view/page.h writes it). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/embedded.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "formula.h"
#include "page.h"
#include "picture.h"
#include "shown.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/shown.h"

static const command_usage usage = {
    .name = "view",
    .synopsis = "IN -o PAGE.html [options]",
    .summary = "Writes one page that shows what attends to what in all layers and heads of IN. Where IN\n"
               "has q and k, they are in the page, which computes weights from them; else the weights\n"
               "that `attn run --weights` and `attn layer --weights` wrote. It needs no network and no\n"
               "other file: open it in a browser. Rows that are no weights of a softmax (NaN, numbers\n"
               "below 0, sums other than 1) are counted at its top.\n",
    .notes = "Examples:\n"
             "  attn view sentence.safetensors -o attention.html --layer 0-2\n"
             "  attn view tired.safetensors --with=flooded.safetensors -o both.html\n"
             "  attn view sentence.safetensors -o live.html --live\n"
             "  attn view sentence.safetensors --export=head.svg --layer=3 --head=1\n",
    .operands = {"input file"},
    .example = "attn view IN.safetensors -o attention.html",
    .without = "seed",
    .lacks = role_lacked_of_weights,
};

typedef struct view_settings {
    const char *output, *export, *title, *with;
    int live;
    shown_choice choice;
} view_settings;

static const option_row view_options[] = {
    {"output", 'o', "FILE", "output file: .html (required, or --export)", OUTPUT(view_settings, output, ".html")},
    {"export", 0, "FILE", "a picture of one head: .svg; --layer and --head choose it", OUTPUT(view_settings, export, ".svg")},
    {"title", 0, "TEXT", "its title (default: the metadata's sentence)", TEXT(view_settings, title)},
    {"with", 0, "FILE", "compare with this file, which has as many layers and heads", TEXT(view_settings, with)},
    {"live", 0, NULL, "a tab that computes a head anew as its options change", FLAG(view_settings, live)},
    {"layer", 0, "LIST", "only these layers, such as 0,3-5", TEXT(view_settings, choice.layers)},
    {"head", 0, "LIST", "only these heads", TEXT(view_settings, choice.heads)},
    {"entry", 0, "LIST", "only these batch entries", TEXT(view_settings, choice.entries)},
    {"queries", 0, "A-B", "only these queries", TEXT(view_settings, choice.queries)},
    {0},
};

/* One file, or two that are compared, and the texts of the page. */
enum { FILES = 2, SOURCE_TEXT = FORMULA_TEXT + 300 + DOUBTS_TEXT };

typedef struct page {
    shown file[FILES];
    int files;
    view_sequence *sequence; /* of all files */
    int64_t sequences;
    view_fact *facts;
    int64_t facts_count;
    char source[FILES][SOURCE_TEXT], attribution[400];
    embedded_package library; /* with --live */
} page;

/* ---- words on the page ---- */

static const char *metadata(const shown *file, const char *key)
{
    return file->input.file ? attn_archive_get_metadata(file->input.file, key) : NULL;
}

static void print_source(const shown *file, char *text, size_t size)
{
    char formula[FORMULA_TEXT], doubts[DOUBTS_TEXT];
    view_doubts_print(&file->doubts, doubts);
    if (file->input.weights) {
        snprintf(text, size, "%.200s: the weights that are in it%s", file->input.path, doubts);
        return;
    }
    formula_print(&file->input, formula, sizeof formula);
    snprintf(text, size, "%.200s: %s, computed by attn %s%s", file->input.path, formula, attn_version(), doubts);
}

static void add_texts(page *g)
{
    const shown *first = &g->file[0];
    int64_t count = first->input.file ? attn_archive_metadata_count(first->input.file) : 0;
    g->facts = need_memory(count, sizeof *g->facts);
    for (int64_t k = 0; k < count; k++) {
        const attn_metadata *m = attn_archive_metadata_at(first->input.file, k);
        if (strcmp(m->key, "tokens") != 0) g->facts[g->facts_count++] = (view_fact){m->key, m->value};
    }
    const char *model = metadata(first, "model"), *licence = metadata(first, "licence");
    if (!licence) licence = metadata(first, "license");
    if (model)
        snprintf(g->attribution, sizeof g->attribution, "Recorded from %.200s%s%.100s", model, licence ? ", " : "",
                 licence ? licence : "");
    for (int f = 0; f < g->files; f++) print_source(&g->file[f], g->source[f], sizeof g->source[f]);
}

/* ---- the page ---- */

static int same_numbers(const int64_t *a, int64_t a_count, const int64_t *b, int64_t b_count)
{
    return a_count == b_count && memcmp(a, b, (size_t)a_count * sizeof *a) == 0;
}

static attn_status check_pair(const page *g, attn_error *error)
{
    const shown *a = &g->file[0], *b = &g->file[1];
    if (g->files < 2 || (same_numbers(a->layer_number, a->layers, b->layer_number, b->layers) &&
                         same_numbers(a->head, a->heads, b->head, b->heads)))
        return ATTN_OK;
    return failure(error, ATTN_ERR_SHAPE,
                   "--with=%.80s has %" PRId64 " layers x %" PRId64 " heads, %.80s has %" PRId64 " x %" PRId64
                   "; both need the same numbers of them: --layer and --head choose",
                   b->input.path, b->layers, b->heads, a->input.path, a->layers, a->heads);
}

static attn_status compose_page(page *g, const view_settings *settings, text_buffer *text, attn_error *error)
{
    const shown *first = &g->file[0];
    add_texts(g);
    for (int f = 0; f < g->files; f++) g->sequences += g->file[f].entries;
    view_sequence *all = g->sequence = need_memory(g->sequences, sizeof *all);
    for (int f = 0; f < g->files; all += g->file[f++].entries)
        memcpy(all, g->file[f].sequence, (size_t)g->file[f].entries * sizeof *all);
    const char *title = settings->title ? settings->title : metadata(first, "sentence");
    const view_data data = {
        .title = title ? title : first->input.path,
        .sources = {g->source[0], g->files > 1 ? g->source[1] : NULL},
        .attribution = g->attribution[0] ? g->attribution : NULL,
        .sequences = g->sequences,
        .layers = first->layers,
        .heads = first->heads,
        .sequence = g->sequence,
        .layer_numbers = first->layer_number,
        .head_numbers = first->head,
        .facts = g->facts,
        .facts_count = g->facts_count,
        .library = settings->live ? &g->library : NULL,
    };
    const attn_status status = view_write(text, &data, error);
    return status == ATTN_OK ? status : failure_about(error, first->input.path);
}

/* ---- a picture of one head ---- */

static attn_status check_one(const shown *file, attn_error *error)
{
    if (file->layers == 1 && file->heads == 1 && file->entries == 1) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT,
                   "--export draws one head, and here are %" PRId64 " entries x %" PRId64 " layers x %" PRId64
                   " heads; --layer, --head and --entry choose one",
                   file->entries, file->layers, file->heads);
}

static attn_status draw_picture(shown *file, const view_settings *settings, const input_settings *in, text_buffer *text,
                                attn_error *error)
{
    char title[100], about[SOURCE_TEXT];
    float *weights = NULL;
    attn_status status = check_one(file, error);
    if (status == ATTN_OK) status = shown_head(file, in, &weights, error);
    if (status == ATTN_OK) {
        const view_sequence *sequence = &file->sequence[0];
        snprintf(title, sizeof title, "Layer %" PRId64 ", head %" PRId64 ": weights", file->layer_number[0], file->head[0]);
        print_source(file, about, sizeof about);
        const picture drawn = {
            .title = settings->title ? settings->title : title,
            .about = about,
            .rows = sequence->len_q,
            .columns = sequence->len_k,
            .stride = sequence->columns,
            .weights = weights,
            .first_query = sequence->first_query,
            .queries = sequence->queries,
            .keys = sequence->keys,
        };
        status = picture_draw(text, &drawn, error);
    }
    free(weights);
    return status;
}

/* ---- the command ---- */

static char *compose_json(const page *g, const view_settings *settings, size_t bytes)
{
    const shown *first = &g->file[0];
    cJSON *object = json_begin();
    json_text(object, "output", settings->output);
    json_text(object, "export", settings->export);
    command_json_warnings(object);
    if (settings->output) json_int(object, "bytes", (int64_t)bytes);
    json_int(object, "entries", first->entries);
    json_int(object, "layers", first->layers);
    json_int(object, "heads", first->heads);
    json_int(object, "queries", first->rows);
    json_int(object, "keys", first->input.problem.shape.len_kv);
    if (settings->output) json_text(object, "holds", first->by_rows ? "q k" : "weights");
    if (settings->output) json_flag(object, "live", settings->live);
    double difference = 0;
    int computes = 0;
    for (int f = 0; f < g->files; f++) {
        computes |= g->file[f].by_rows;
        if (g->file[f].by_rows && g->file[f].difference > difference) difference = g->file[f].difference;
    }
    if (settings->output && computes) json_number(object, "largest_difference", difference);
    return json_compose(object);
}

static void tell(const page *g, const view_settings *settings, size_t bytes)
{
    const shown *first = &g->file[0];
    if (settings->export) {
        printf("wrote ");
        put_shown(stdout, settings->export);
        printf("\n");
    }
    if (!settings->output) return;
    printf("wrote ");
    put_shown(stdout, settings->output);
    printf(" (%.1f MB): %" PRId64 " layers x %" PRId64 " heads; open it in a browser\n", (double)bytes / 1e6, first->layers,
           first->heads);
    for (int f = 0; f < g->files; f++)
        if (g->file[f].by_rows && g->file[f].difference > 0) {
            printf("it computes weights from rounded q and k: those of ");
            put_shown(stdout, g->file[f].input.path);
            printf(" differ by at most %.2g\n", g->file[f].difference);
        }
}

static attn_status check_outputs(const view_settings *settings, attn_error *error)
{
    if (!settings->output && !settings->export)
        return failure(error, ATTN_ERR_ARGUMENT, "no output file; for example: %s", usage.example);
    if (!settings->output && settings->with)
        return failure(error, ATTN_ERR_ARGUMENT, "--with has no effect without -o: it is for the page");
    if (!settings->output && settings->live)
        return failure(error, ATTN_ERR_ARGUMENT, "--live has no effect without -o: it is for the page");
    return file_check_distinct(settings->output, settings->export, error);
}

/* The page computes from q and k; a second file may lack them, which its tab says. */
static attn_status prepare_live(page *g, attn_error *error)
{
    const shown *first = &g->file[0];
    if (first->input.weights)
        return failure(error, ATTN_ERR_ARGUMENT, "%.100s has weights and no q: --live computes weights from q and k",
                       first->input.path);
    if (!first->by_rows)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "%.100s: --live is for dot products under a softmax without mask and bias tensors; this page holds weights",
                       first->input.path);
    return embedded_find(&g->library, error);
}

static attn_status read_files(page *g, const char *path, const view_settings *settings, const input_settings *in, attn_error *error)
{
    const char *const paths[FILES] = {path, settings->with};
    attn_status status = check_outputs(settings, error);
    for (int f = 0; f < g->files && status == ATTN_OK; f++) {
        status = shown_load(&g->file[f], paths[f], &settings->choice, f, in, error);
        if (status == ATTN_OK) status = input_check_output(&g->file[f].input, settings->output, error);
        if (status == ATTN_OK) status = input_check_output(&g->file[f].input, settings->export, error);
    }
    if (status == ATTN_OK) status = check_pair(g, error);
    return status == ATTN_OK && settings->live ? prepare_live(g, error) : status;
}

static attn_status view(const char *path, const void *own, input_settings *in, attn_error *error)
{
    const view_settings *settings = own;
    const common_settings *common = &in->common;
    page g = {.files = settings->with ? 2 : 1};
    text_buffer html = {0}, svg = {0};
    char *json = NULL;
    attn_status status = read_files(&g, path, settings, in, error);
    if (status == ATTN_OK && settings->export) status = draw_picture(&g.file[0], settings, in, &svg, error);
    for (int f = 0; f < g.files && status == ATTN_OK && settings->output; f++) status = shown_compute(&g.file[f], in, error);
    if (status == ATTN_OK && settings->output) status = compose_page(&g, settings, &html, error);
    if (status == ATTN_OK && common->json) json = compose_json(&g, settings, html.count);
    if (status == ATTN_OK && settings->export) status = file_write_text(&svg, settings->export, error);
    if (status == ATTN_OK && settings->output) status = file_write_text(&html, settings->output, error);
    status = file_finish(status, NULL, NULL, json, error);
    if (status == ATTN_OK && options_tell(common)) tell(&g, settings, html.count);
    for (int f = 0; f < g.files; f++) shown_free(&g.file[f]);
    text_free(&html);
    text_free(&svg);
    free(g.sequence), free(g.facts);
    return status;
}

int attn_cmd_view(int argc, char **argv)
{
    input_settings in;
    view_settings settings = {0};
    const option_group groups[] = {{"Page", view_options, &settings}, {0}};
    return input_command(&usage, groups, FLAG_INPUT, argc, argv, &in, view, &settings);
}
