/* SPDX-License-Identifier: MIT
 *
 * top.c - `attn top`: what a token attends to, by layer and head. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/base/commands.h"
#include "cli/base/options.h"
#include "cli/base/progress.h"
#include "cli/compute/weights.h"
#include "cli/input/input.h"
#include "cli/input/labels.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/nearest.h"
#include "testing/text/shown.h"

static const command_usage usage = {
    .name = "top",
    .synopsis = "IN --token WORD [options]",
    .summary = "Lists what a token attends to: the strongest links from every occurrence of WORD to\n"
               "any key, by layer and head. The weights are computed from q and k of IN, or are those\n"
               "that a file without q has, as `attn run --weights` and `attn layer --weights` write it.\n",
    .notes = "WORD is a token of the metadata's `tokens`, or #N for the token at position N.\n"
             "Transformers put much weight on tokens such as [CLS], [SEP] and '.'; --content omits\n"
             "links to these. Keys that a query cannot see are never listed.\n"
             "\n"
             "Examples:\n"
             "  attn top sentence.safetensors --token it --content\n"
             "  attn top sentence.safetensors --token it --layer 3 --head 1 --json\n",
    .operands = {"input file"},
    .example = "attn top IN.safetensors --token it",
    .without = "seed",
    .lacks = role_lacked_of_weights,
};

enum { TABLE_COUNT = 20 };

typedef struct top_settings {
    const char *token;
    const char *layers, *heads, *entries;
    int64_t count; /* -1: not given */
    int content;
} top_settings;

static const option_row top_options[] = {
    {"token", 't', "WORD", "the token that attends (required); #N: by position", TEXT(top_settings, token), .needed = "token"},
    {"layer", 0, "LIST", "only these layers, such as 0,3-5", TEXT(top_settings, layers)},
    {"head", 0, "LIST", "only these heads", TEXT(top_settings, heads)},
    {"entry", 0, "LIST", "only these batch entries", TEXT(top_settings, entries)},
    {"count", 'n', "N", "at most N links (default 20; with --json: all)", WHOLE(top_settings, count, 0, INT64_MAX)},
    {"content", 0, NULL, "omit links to special tokens and punctuation", FLAG(top_settings, content)},
    {0},
};

/* ---- links ---- */

typedef struct token_link {
    float weight;
    int64_t entry, layer, head, query, key;
} token_link;

typedef struct link_list {
    token_link *list;
    int64_t count, capacity;
    int64_t keep; /* only this many, the strongest, are kept */
    int64_t seen; /* how many there were in all */
} link_list;

static int compare(int64_t a, int64_t b) { return (a > b) - (a < b); }

/* Strongest first; equal ones in the order of the file. */
static int by_weight(const void *one, const void *two)
{
    const token_link *a = one, *b = two;
    if (a->weight != b->weight) return a->weight > b->weight ? -1 : 1;
    int order = compare(a->entry, b->entry);
    if (!order) order = compare(a->layer, b->layer);
    if (!order) order = compare(a->head, b->head);
    if (!order) order = compare(a->query, b->query);
    return order ? order : compare(a->key, b->key);
}

static void sort_links(link_list *l)
{
    if (l->count) qsort(l->list, (size_t)l->count, sizeof *l->list, by_weight);
    if (l->count > l->keep) l->count = l->keep;
}

/* Memory stays within a small multiple of what is kept. */
static void add_link(link_list *l, token_link new)
{
    l->seen++;
    if (l->count == l->capacity) {
        if (l->count / 2 > l->keep) sort_links(l);
        if (l->count == l->capacity) {
            int64_t capacity = l->capacity ? 2 * l->capacity : 1024;
            token_link *more = need_memory(capacity, sizeof *more);
            if (l->count) memcpy(more, l->list, (size_t)l->count * sizeof *more);
            free(l->list);
            l->list = more;
            l->capacity = capacity;
        }
    }
    l->list[l->count++] = new;
}

/* ---- the token ---- */

/* Marks that tokenizers put before a word or a piece of one: GPT-2, SentencePiece, WordPiece. */
static const char *without_mark(const char *token)
{
    static const char *const marks[] = {"\xc4\xa0", "\xe2\x96\x81", "##"};
    for (size_t k = 0; k < sizeof marks / sizeof *marks; k++)
        if (strncmp(token, marks[k], strlen(marks[k])) == 0 && token[strlen(marks[k])]) return token + strlen(marks[k]);
    return token;
}

/* How well a label matches: 3 exactly, 2 without a tokenizer's mark, 1 also ignoring case, 0 not at all. */
static int match(const char *label, const char *pattern)
{
    if (!label) return 0;
    if (strcmp(label, pattern) == 0) return 3;
    if (strcmp(without_mark(label), pattern) == 0) return 2;
    return strcasecmp(without_mark(label), pattern) == 0;
}

/* "#9": the position, at most INT64_MAX; -1 otherwise. */
static int64_t position_of(const char *pattern)
{
    const char *digits = pattern + 1;
    int64_t position = INT64_MAX;
    if (pattern[0] != '#' || !*digits || strspn(digits, "0123456789") != strlen(digits)) return -1;
    (void)option_int("", digits, 0, INT64_MAX, &position, NULL); /* one that does not fit stays INT64_MAX */
    return position;
}

/* The best match of any query of the chosen entries. */
static attn_status find_token(const attention_input *input, const labels *l, const int64_t *entry, int64_t entries,
                              const char *pattern, int *best, attn_error *error)
{
    const int64_t len_q = input->problem.shape.len_q;
    char hint[140];
    nearest near;
    nearest_init(&near, pattern);
    *best = 0;
    for (int64_t e = 0; e < entries; e++) {
        for (int64_t i = 0; i < len_q; i++) {
            const char *label = labels_query(l, input, entry[e], i);
            int found = match(label, pattern);
            if (found > *best) *best = found;
            if (label) nearest_offer(&near, label);
        }
    }
    if (*best) return ATTN_OK;
    int64_t position = position_of(pattern);
    if (position >= 0 && position < len_q) return ATTN_OK;
    if (position >= 0)
        return failure(error, ATTN_ERR_ARGUMENT, "%.100s: no query %.40s; there are %" PRId64, input->path, pattern, len_q);
    if (!near.found[0])
        return failure(error, ATTN_ERR_ARGUMENT,
                       "%.100s: queries have no tokens; --tokens=FILE names them, --token='#N' chooses one by position",
                       input->path);
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT, "%.80s: no query is the token '%.40s'%.100s", input->path, pattern, hint);
}

/* ---- the search ---- */

/* Indices of the chosen layers, heads and entries. */
typedef struct chosen {
    int64_t *layer, *head, *entry;
    int64_t layers, heads, entries;
} chosen;

static void add_row(link_list *found, const attention_input *input, const labels *l, const chosen *c, const float *weights,
                    token_link at, int content)
{
    const int64_t len_kv = input->problem.shape.len_kv;
    for (int64_t h = 0; h < c->heads; h++) {
        const float *row = weights + c->head[h] * len_kv;
        for (int64_t j = 0; j < len_kv; j++) {
            if (!(row[j] > 0)) continue;
            const char *key = content ? labels_key(l, input, at.entry, j) : NULL;
            if (key && label_is_special(key)) continue;
            at.head = c->head[h];
            at.key = j;
            at.weight = row[j];
            add_link(found, at);
        }
    }
}

static attn_status search(link_list *found, const attention_input *input, const labels *l, const chosen *c,
                          const top_settings *settings, int best, const common_settings *common, attn_error *error)
{
    const attn_shape *s = &input->problem.shape;
    const int64_t position = best ? -1 : position_of(settings->token);
    progress bar;
    weight_reader reader;
    float *weights = need_memory(s->heads_q * s->len_kv, sizeof *weights);
    attn_status status = weights_begin(&reader, input, 1, common, error);
    progress_begin(&bar, "weights", common->quiet);
    for (int64_t e = 0; e < c->entries && status == ATTN_OK; e++) {
        for (int64_t i = 0; i < s->len_q && status == ATTN_OK; i++) {
            int here = best ? match(labels_query(l, input, c->entry[e], i), settings->token) == best : i == position;
            for (int64_t y = 0; here && y < c->layers && status == ATTN_OK; y++) {
                token_link at = {.entry = c->entry[e], .layer = l->layer_number[c->layer[y]], .query = i};
                status = weights_read(&reader, labels_batch(l, c->layer[y], c->entry[e]), i, weights, error);
                if (status == ATTN_OK) add_row(found, input, l, c, weights, at, settings->content);
            }
            progress_show(&bar, e * s->len_q + i + 1, c->entries * s->len_q);
        }
    }
    progress_end(&bar);
    weights_end(&reader);
    free(weights);
    if (status == ATTN_OK) sort_links(found);
    else failure_about(error, input->path);
    return status;
}

/* ---- the result ---- */

static void json_words_of(cJSON *list, const token_list *tokens)
{
    for (int64_t k = 0; k < tokens->count; k++) cJSON_AddItemToArray(list, cJSON_CreateString(tokens->word[k]));
}

static void json_label(cJSON *object, const char *name, const char *label)
{
    if (label) json_text(object, name, label);
    else cJSON_AddNullToObject(object, name);
}

static void print_json(const link_list *found, const attention_input *input, const labels *l)
{
    cJSON *object = json_begin(), *tokens = json_list(object, "tokens"), *list = json_list(object, "links");
    command_json_warnings(object);
    if (l->lists == 1) json_words_of(tokens, &l->list[0]);
    for (int64_t k = 0; l->lists > 1 && k < l->lists; k++) {
        cJSON *inner = cJSON_CreateArray();
        cJSON_AddItemToArray(tokens, inner);
        json_words_of(inner, &l->list[k]);
    }
    for (int64_t k = 0; k < found->count; k++) {
        const token_link *a = &found->list[k];
        cJSON *item = json_item(list);
        if (l->entries > 1) json_int(item, "entry", a->entry);
        json_int(item, "layer", a->layer);
        json_int(item, "head", a->head);
        json_int(item, "query", a->query);
        json_int(item, "key", a->key);
        json_label(item, "query_token", labels_query(l, input, a->entry, a->query));
        json_label(item, "key_token", labels_key(l, input, a->entry, a->key));
        json_number(item, "weight", a->weight);
    }
    json_end(object);
}

static void print_cell(const char *text, int64_t position, int width)
{
    const int used = shown_width(text);
    printf("%4" PRId64 " ", position);
    put_shown(stdout, text);
    printf("%*s", width > used ? width - used : 0, "");
}

static void print_table(const link_list *found, const attention_input *input, const labels *l, const top_settings *settings,
                        const common_settings *common)
{
    enum { BAR = 24 };
    char text[LABEL_NUMBER];
    int wide_query = 5, wide_key = 3;
    for (int64_t k = 0; k < found->count; k++) {
        const token_link *a = &found->list[k];
        int query = shown_width(label_or_number(labels_query(l, input, a->entry, a->query), a->query, text));
        int key = shown_width(label_or_number(labels_key(l, input, a->entry, a->key), a->key, text));
        if (query > wide_query) wide_query = query;
        if (key > wide_key) wide_key = key;
    }
    if (!common->quiet) {
        printf("the strongest %" PRId64 " of %" PRId64 " links from '", found->count, found->seen);
        put_shown(stdout, settings->token);
        printf("'%s\n", settings->content ? " to content words" : "");
    }
    printf("%slayer  head  %4s %-*s  %4s %-*s  weight\n", l->entries > 1 ? "entry  " : "", "", wide_query, "query", "", wide_key,
           "key");
    for (int64_t k = 0; k < found->count; k++) {
        const token_link *a = &found->list[k];
        if (l->entries > 1) printf("%5" PRId64 "  ", a->entry);
        printf("%5" PRId64 "  %4" PRId64 "  ", a->layer, a->head);
        print_cell(label_or_number(labels_query(l, input, a->entry, a->query), a->query, text), a->query, wide_query);
        printf("  ");
        print_cell(label_or_number(labels_key(l, input, a->entry, a->key), a->key, text), a->key, wide_key);
        printf("  %.3f  ", (double)a->weight);
        for (int b = 0; b < (int)(a->weight * BAR + 0.5f); b++) putchar('#');
        putchar('\n');
    }
}

/* ---- the command ---- */

static attn_status top(const char *path, const void *own, input_settings *in, attn_error *error)
{
    const top_settings *settings = own;
    const common_settings *common = &in->common;
    attention_input input;
    labels l = {0};
    chosen c = {0};
    int best = 0;
    int64_t count = settings->count >= 0 ? settings->count : common->json ? INT64_MAX : TABLE_COUNT;
    link_list found = {.keep = count};
    attn_status status = input_load_weights(&input, path, in, error);
    if (status == ATTN_OK) status = labels_read(&l, &input, in->tokens, error);
    if (status == ATTN_OK) status = labels_choose("layer", settings->layers, l.layer_number, l.layers, &c.layer, &c.layers, error);
    if (status == ATTN_OK)
        status = labels_choose("head", settings->heads, NULL, input.problem.shape.heads_q, &c.head, &c.heads, error);
    if (status == ATTN_OK) status = labels_choose("entry", settings->entries, NULL, l.entries, &c.entry, &c.entries, error);
    if (status == ATTN_OK) status = find_token(&input, &l, c.entry, c.entries, settings->token, &best, error);
    if (status == ATTN_OK) status = search(&found, &input, &l, &c, settings, best, common, error);
    if (status == ATTN_OK && common->json) print_json(&found, &input, &l);
    if (status == ATTN_OK && !common->json) print_table(&found, &input, &l, settings, common);
    free(found.list);
    free(c.layer);
    free(c.head);
    free(c.entry);
    labels_free(&l);
    input_free(&input);
    return status;
}

int attn_cmd_top(int argc, char **argv)
{
    input_settings in;
    top_settings settings = {.count = -1};
    const option_group groups[] = {{"Links", top_options, &settings}, {0}};
    return input_command(&usage, groups, FLAG_INPUT, argc, argv, &in, top, &settings);
}
