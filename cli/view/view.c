/* SPDX-License-Identifier: MIT
 *
 * view.c - `attn view`: all weights of a file as one page for a browser (view/page.h writes it). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "cli/base/progress.h"
#include "cli/compute/weights.h"
#include "cli/input/input.h"
#include "cli/input/labels.h"
#include "formula.h"
#include "page.h"
#include "rows.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/shown.h"

static const command_usage usage = {
    .name = "view",
    .synopsis = "IN -o PAGE.html [options]",
    .summary = "Writes one page that shows the weights of all layers and heads, computed from q and k\n"
               "of IN, or read from IN as `attn run --weights` and `attn layer --weights` wrote them. It\n"
               "needs no network and no other file: open it in a browser. Rows that are no weights of a\n"
               "softmax (NaN, numbers below 0, sums other than 1) are counted at its top.\n",
    .notes = "Example:\n"
             "  attn view sentence.safetensors -o attention.html --layer 0-2\n",
    .operands = {"input file"},
    .example = "attn view IN.safetensors -o attention.html",
    .without = "seed",
    .lacks = role_lacked_of_weights,
};

typedef struct view_settings {
    const char *output, *title;
    const char *layers, *heads, *entries, *queries;
} view_settings;

static const option_row view_options[] = {
    {"output", 'o', "FILE", "output file: .html (required)", OUTPUT(view_settings, output, ".html"), .needed = "output file"},
    {"title", 0, "TEXT", "its title (default: the metadata's sentence)", TEXT(view_settings, title)},
    {"layer", 0, "LIST", "only these layers, such as 0,3-5", TEXT(view_settings, layers)},
    {"head", 0, "LIST", "only these heads", TEXT(view_settings, heads)},
    {"entry", 0, "LIST", "only these batch entries", TEXT(view_settings, entries)},
    {"queries", 0, "A-B", "only these queries", TEXT(view_settings, queries)},
    {0},
};

/* The data from which the page is written. */
typedef struct page {
    attention_input input;
    labels labels;
    int64_t *layer, *head, *entry, *query; /* chosen indices */
    int64_t layers, heads, entries, rows;
    float *weights; /* [entry][layer][head][row][key] */
    view_sequence *sequence;
    const char **names; /* of queries and keys */
    int64_t *layer_number;
    view_fact *facts;
    int64_t facts_count;
    char source[FORMULA_TEXT + 300 + ROWS_TEXT], attribution[400];
} page;

static attn_status choose(page *g, const view_settings *settings, attn_error *error)
{
    const labels *l = &g->labels;
    const attn_shape *s = &g->input.problem.shape;
    attn_status status = labels_choose("layer", settings->layers, l->layer_number, l->layers, &g->layer, &g->layers, error);
    if (status == ATTN_OK) status = labels_choose("head", settings->heads, NULL, s->heads_q, &g->head, &g->heads, error);
    if (status == ATTN_OK) status = labels_choose("entry", settings->entries, NULL, l->entries, &g->entry, &g->entries, error);
    if (status == ATTN_OK) status = labels_choose_range("queries", settings->queries, s->len_q, &g->query, &g->rows, error);
    g->layer_number = need_memory(g->layers, sizeof *g->layer_number);
    for (int64_t y = 0; y < g->layers; y++) g->layer_number[y] = l->layer_number[g->layer[y]];
    return status;
}

/* Checks the size of the page before anything of that size is allocated. */
static attn_status check_size(const page *g, attn_error *error)
{
    const int64_t sizes[] = {g->entries, g->layers, g->heads, g->rows, g->input.problem.shape.len_kv};
    int64_t count = 1;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        if (sizes[k] == 0) return failure(error, ATTN_ERR_SHAPE, "%.100s: nothing to show: a size is 0", g->input.path);
        if (!__builtin_mul_overflow(count, sizes[k], &count) && count <= VIEW_MAX_WEIGHTS) continue;
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "%.60s: %" PRId64 " entries x %" PRId64 " layers x %" PRId64 " heads x %" PRId64 " x %" PRId64
                       " weights are too many for a page (at most %" PRId64 "); --layer, --head, --entry, --queries choose fewer",
                       g->input.path, sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], VIEW_MAX_WEIGHTS);
    }
    return ATTN_OK;
}

static attn_status compute(page *g, const common_settings *common, attn_error *error)
{
    const attn_shape *s = &g->input.problem.shape;
    const int64_t head_size = g->rows * s->len_kv;
    progress bar;
    weight_reader reader;
    float *all_heads = need_memory(s->heads_q * head_size, sizeof *all_heads), *out;
    out = g->weights = need_memory(g->entries * g->layers * g->heads * head_size, sizeof *g->weights);
    attn_status status = weights_begin(&reader, &g->input, g->rows, common, error);
    progress_begin(&bar, "weights", common->quiet);
    for (int64_t e = 0; e < g->entries; e++) {
        for (int64_t y = 0; y < g->layers && status == ATTN_OK; y++) {
            status = weights_read(&reader, labels_batch(&g->labels, g->layer[y], g->entry[e]), g->query[0], all_heads, error);
            for (int64_t h = 0; h < g->heads; h++, out += head_size)
                memcpy(out, all_heads + g->head[h] * head_size, (size_t)head_size * sizeof *out);
            progress_show(&bar, e * g->layers + y + 1, g->entries * g->layers);
        }
    }
    progress_end(&bar);
    weights_end(&reader);
    free(all_heads);
    return status == ATTN_OK ? status : failure_about(error, g->input.path);
}

/* ---- words on the page ---- */

/* Labels of all queries or keys, or NULL if none has one; the rest get their numbers. */
static const char *const *names_of(page *g, int64_t entry, int64_t first, int64_t count, int keys, const char **names,
                                   char *numbers)
{
    int any = 0;
    for (int64_t k = 0; k < count; k++) {
        const char *label =
            keys ? labels_key(&g->labels, &g->input, entry, first + k) : labels_query(&g->labels, &g->input, entry, first + k);
        any |= label != NULL;
        names[k] = label_or_number(label, first + k, numbers + k * LABEL_NUMBER);
    }
    return any ? names : NULL;
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/* numbers: memory for the labels of tokens that have none. */
static void add_sequences(page *g, char **numbers)
{
    const attn_shape *s = &g->input.problem.shape;
    const int64_t *lengths_q = g->input.tensors.lengths_q.data, *lengths_kv = g->input.tensors.lengths_kv.data,
                  each = g->rows + s->len_kv;
    g->sequence = need_memory(g->entries, sizeof *g->sequence);
    g->names = need_memory(g->entries * each, sizeof *g->names);
    *numbers = need_memory(g->entries * each, LABEL_NUMBER);
    for (int64_t e = 0; e < g->entries; e++) {
        int64_t entry = g->entry[e], b = labels_batch(&g->labels, g->layer[0], entry), first = g->query[0];
        const char **names = g->names + e * each;
        char *of_entry = *numbers + e * each * LABEL_NUMBER;
        int64_t len_q = lengths_q ? lengths_q[b] - first : g->rows;
        g->sequence[e] = (view_sequence){
            .len_q = len_q < 0 ? 0 : least(len_q, g->rows),
            .len_k = lengths_kv ? lengths_kv[b] : s->len_kv,
            .first_query = first,
            .queries = names_of(g, entry, first, g->rows, 0, names, of_entry),
            .keys = names_of(g, entry, 0, s->len_kv, 1, names + g->rows, of_entry + g->rows * LABEL_NUMBER),
        };
    }
}

static const char *metadata(const page *g, const char *key)
{
    return g->input.file ? attn_archive_get_metadata(g->input.file, key) : NULL;
}

static void add_facts(page *g)
{
    int64_t count = g->input.file ? attn_archive_metadata_count(g->input.file) : 0;
    g->facts = need_memory(count, sizeof *g->facts);
    for (int64_t k = 0; k < count; k++) {
        const attn_metadata *m = attn_archive_metadata_at(g->input.file, k);
        if (strcmp(m->key, "tokens") != 0) g->facts[g->facts_count++] = (view_fact){m->key, m->value};
    }
    const char *model = metadata(g, "model"), *licence = metadata(g, "licence") ? metadata(g, "licence") : metadata(g, "license");
    if (model)
        snprintf(g->attribution, sizeof g->attribution, "Recorded from %.200s%s%.100s", model, licence ? ", " : "",
                 licence ? licence : "");
    char formula[FORMULA_TEXT], rows[ROWS_TEXT];
    view_rows_print(g->weights, g->entries * g->layers * g->heads * g->rows, g->input.problem.shape.len_kv,
                    g->input.weights != NULL, rows);
    if (g->input.weights) {
        snprintf(g->source, sizeof g->source, "%.200s: the weights that are in it%s", g->input.path, rows);
        return;
    }
    formula_print(&g->input, formula, sizeof formula);
    snprintf(g->source, sizeof g->source, "%.200s: %s, computed by attn %s%s", g->input.path, formula, attn_version(), rows);
}

/* ---- the command ---- */

static char *compose_json(const page *g, const view_settings *settings, size_t bytes)
{
    cJSON *object = json_begin();
    json_text(object, "output", settings->output);
    command_json_warnings(object);
    json_int(object, "bytes", (int64_t)bytes);
    json_int(object, "entries", g->entries);
    json_int(object, "layers", g->layers);
    json_int(object, "heads", g->heads);
    json_int(object, "queries", g->rows);
    json_int(object, "keys", g->input.problem.shape.len_kv);
    return json_compose(object);
}

/* *json: to be printed after the file is written; only set if wants_json. */
static attn_status write_page(page *g, const view_settings *settings, int wants_json, size_t *bytes, char **json, attn_error *error)
{
    char *numbers = NULL;
    text_buffer text = {0};
    add_sequences(g, &numbers);
    add_facts(g);
    const char *title = settings->title ? settings->title : metadata(g, "sentence");
    const view_data data = {
        .title = title ? title : g->input.path,
        .source = g->source,
        .attribution = g->attribution[0] ? g->attribution : NULL,
        .sequences = g->entries,
        .layers = g->layers,
        .heads = g->heads,
        .len_q = g->rows,
        .len_k = g->input.problem.shape.len_kv,
        .weights = g->weights,
        .sequence = g->sequence,
        .layer_numbers = g->layer_number,
        .head_numbers = g->head,
        .facts = g->facts,
        .facts_count = g->facts_count,
    };
    attn_status status = view_write(&text, &data, error);
    *bytes = text.count;
    if (status == ATTN_OK && wants_json) *json = compose_json(g, settings, text.count);
    if (status == ATTN_OK) status = file_write_text(&text, settings->output, error);
    else failure_about(error, g->input.path);
    text_free(&text);
    free(numbers);
    return status;
}

static attn_status view(const char *path, const void *own, input_settings *in, attn_error *error)
{
    const view_settings *settings = own;
    const common_settings *common = &in->common;
    page g = {0};
    size_t bytes = 0;
    char *json = NULL;
    attn_status status = input_load_weights(&g.input, path, in, error);
    if (status == ATTN_OK) status = labels_read(&g.labels, &g.input, in->tokens, error);
    if (status == ATTN_OK) status = input_check_output(&g.input, settings->output, error);
    if (status == ATTN_OK) status = choose(&g, settings, error);
    if (status == ATTN_OK) status = check_size(&g, error);
    if (status == ATTN_OK) status = compute(&g, common, error);
    if (status == ATTN_OK) status = write_page(&g, settings, common->json, &bytes, &json, error);
    status = file_finish(status, NULL, NULL, json, error);
    if (status == ATTN_OK && options_tell(common)) {
        printf("wrote ");
        put_shown(stdout, settings->output);
        printf(" (%.1f MB): %" PRId64 " layers x %" PRId64 " heads; open it in a browser\n", (double)bytes / 1e6, g.layers,
               g.heads);
    }
    void *const owned[] = {g.layer, g.head, g.entry, g.query, g.weights, g.sequence, g.names, g.layer_number, g.facts};
    for (size_t k = 0; k < sizeof owned / sizeof *owned; k++) free(owned[k]);
    labels_free(&g.labels);
    input_free(&g.input);
    return status;
}

int attn_cmd_view(int argc, char **argv)
{
    input_settings in;
    view_settings settings = {0};
    const option_group groups[] = {{"Page", view_options, &settings}, {0}};
    return input_command(&usage, groups, FLAG_INPUT, argc, argv, &in, view, &settings);
}
