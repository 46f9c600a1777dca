/* SPDX-License-Identifier: MIT
 *
 * einsum.c - `attn einsum`: what a contraction in Einstein notation computes: its free and summed indices, shapes and cost. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/options.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/nearest.h"

enum { OPERANDS = 8, LETTERS = 128, TERM = 16, NAME = 4 /* letters alone are a name from this length on */ };

typedef struct example {
    const char *name, *contraction, *meaning;
} example;

/* The contractions of attention, by name. */
static const example examples[] = {
    {"dot_product", "a,a->", "inner product of two vectors"},
    {"outer_product", "a,b->ab", "all products of elements of two vectors"},
    {"matrix_transpose", "ij->ji", "rows become columns"},
    {"trace", "ii->", "sum of the diagonal"},
    {"diagonal", "ii->i", "the diagonal as a vector"},
    {"row_sums", "ij->i", "sum of each row"},
    {"matrix_vector", "ij,j->i", "matrix times vector"},
    {"matrix_multiply", "ij,jk->ik", "matrix times matrix"},
    {"batch_matrix_multiply", "bik,bkj->bij", "a matrix product for each entry of a batch"},
    {"frobenius_norm_squared", "ij,ij->", "sum of elementwise products"},
    {"hadamard_product", "ij,ij->ij", "elementwise product"},
    {"bilinear_form", "a,ab,b->", "u^T g v for one pair of vectors"},
    {"batch_bilinear_form", "ia,ab,jb->ij", "scores of queries and keys under a metric g"},
    {"attention_scores", "ia,ja->ij", "query i with key j"},
    {"attention_output", "ij,jc->ic", "mean of values under the weights"},
    {"batched_attention_scores", "bia,bja->bij", "scores for each entry of a batch"},
    {"batched_attention_output", "bij,bjc->bic", "outputs for each entry of a batch"},
    {"multihead_project", "id,hda->hia", "queries, keys or values of every head"},
    {"multihead_scores", "hia,hja->hij", "scores of every head"},
    {"multihead_output", "hij,hjc->hic", "outputs of every head"},
    {"multihead_combine", "hic,hcd->id", "heads summed into the model's channels"},
    {"batched_multihead_project", "bid,hda->bhia", "projections of every head and batch entry"},
    {"batched_multihead_scores", "bhia,bhja->bhij", "scores of every head and batch entry"},
    {"batched_multihead_output", "bhij,bhjc->bhic", "outputs of every head and batch entry"},
    {"linear_attention_state", "jf,jc->fc", "the state of linear attention: features times values"},
    {"linear_attention_output", "if,fc->ic", "what the features of a query read from that state"},
};
enum { EXAMPLES = sizeof examples / sizeof *examples };

static void print_examples(void)
{
    printf("Contractions by name:\n");
    for (int k = 0; k < EXAMPLES; k++) printf("  %-26s %-18s %s\n", examples[k].name, examples[k].contraction, examples[k].meaning);
    printf("\n");
}

static const command_usage usage = {
    .name = "einsum",
    .synopsis = "CONTRACTION|NAME [options]",
    .summary = "Explains a contraction such as \"bhid,bhjd->bhij\": its free and summed indices, the shapes\n"
               "of its inputs and output, and its cost. Without ->, the indices that occur once are free,\n"
               "in alphabetical order; a single tensor with more than 3 indices needs the ->.\n",
    .notes = "Examples:\n"
             "  attn einsum \"bhid,bhjd->bhij\" --sizes=b=2,h=8,i=1024,j=1024,d=64\n"
             "  attn einsum multihead_scores --json\n",
    .more = print_examples,
    .without = "threads isa seed",
    .operands = {"contraction"},
    .example = "attn einsum \"bhid,bhjd->bhij\"",
};

typedef struct contraction {
    char text[OPERANDS * TERM];
    char inputs[OPERANDS][TERM];
    int count;
    char output[TERM];
    char free_indices[LETTERS], summed[LETTERS]; /* in order of appearance */
    int64_t size[LETTERS];                       /* 0: not given */
} contraction;

/* ---- reading ---- */

static attn_status add_letter(char *term, char letter, attn_error *error)
{
    const size_t at = strlen(term);
    if (!isalpha((unsigned char)letter))
        return failure(error, ATTN_ERR_ARGUMENT, "'%c' is not an index; indices are letters", letter);
    if (at + 1 == TERM) return failure(error, ATTN_ERR_ARGUMENT, "more than %d indices on one tensor", TERM - 1);
    term[at] = letter;
    return ATTN_OK;
}

static attn_status read_terms(contraction *c, const char *text, size_t length, attn_error *error)
{
    c->count = 1;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == ' ') continue;
        if (text[i] == ',') {
            if (c->count == OPERANDS) return failure(error, ATTN_ERR_ARGUMENT, "more than %d tensors", OPERANDS);
            c->count++;
            continue;
        }
        const attn_status status = add_letter(c->inputs[c->count - 1], text[i], error);
        if (status != ATTN_OK) return status;
    }
    for (int k = 0; k < c->count; k++)
        if (!c->inputs[k][0] && c->count > 1) return failure(error, ATTN_ERR_ARGUMENT, "tensor %d has no index", k + 1);
    if (!c->inputs[0][0]) return failure(error, ATTN_ERR_ARGUMENT, "no index before the arrow");
    return ATTN_OK;
}

static int occurrences(const contraction *c, char letter)
{
    int n = 0;
    for (int k = 0; k < c->count; k++)
        for (const char *at = c->inputs[k]; *at; at++) n += *at == letter;
    return n;
}

static attn_status read_output(contraction *c, const char *arrow, attn_error *error)
{
    for (int letter = 'A'; !arrow && letter <= 'z'; letter++) {
        if (!isalpha(letter) || occurrences(c, (char)letter) != 1) continue;
        const attn_status status = add_letter(c->output, (char)letter, error);
        if (status != ATTN_OK) return status;
    }
    for (const char *at = arrow ? arrow + 2 : ""; *at; at++) {
        if (*at == ' ') continue;
        if (strchr(c->output, *at)) return failure(error, ATTN_ERR_ARGUMENT, "index %c appears twice after the arrow", *at);
        const attn_status status = add_letter(c->output, *at, error);
        if (status != ATTN_OK) return status;
        if (!occurrences(c, *at))
            return failure(error, ATTN_ERR_ARGUMENT, "index %c after the arrow is not on any tensor before it", *at);
    }
    return ATTN_OK;
}

static void sort_indices(contraction *c)
{
    for (int k = 0; k < c->count; k++)
        for (const char *at = c->inputs[k]; *at; at++) {
            char *list = strchr(c->output, *at) ? c->free_indices : c->summed;
            if (!strchr(list, *at)) list[strlen(list)] = *at;
        }
}

static attn_status read_contraction(contraction *c, const char *text, attn_error *error)
{
    const char *arrow = strstr(text, "->");
    attn_status status = read_terms(c, text, arrow ? (size_t)(arrow - text) : strlen(text), error);
    if (status == ATTN_OK) status = read_output(c, arrow, error);
    if (status != ATTN_OK) return status;
    for (int k = 0; k < c->count; k++) {
        if (k) strcat(c->text, ",");
        strcat(c->text, c->inputs[k]);
    }
    strcat(strcat(c->text, "->"), c->output);
    sort_indices(c);
    return ATTN_OK;
}

/* b=2,h=8 */
static attn_status read_sizes(contraction *c, const char *text, attn_error *error)
{
    while (*text) {
        char *end;
        const char letter = *text;
        const long long size = text[1] == '=' ? strtoll(text + 2, &end, 10) : 0;
        if (text[1] != '=' || end == text + 2 || (*end && *end != ','))
            return failure(error, ATTN_ERR_ARGUMENT, "sizes (%.40s) are not a list such as b=2,h=8", text);
        if (!isalpha((unsigned char)letter) || !occurrences(c, letter))
            return failure(error, ATTN_ERR_ARGUMENT, "sizes name %c, which is not an index of %.100s", letter, c->text);
        if (size < 1 || size > 1 << 30)
            return failure(error, ATTN_ERR_ARGUMENT, "the size of %c (%.*s) is not between 1 and %d", letter, (int)(end - text - 2),
                           text + 2, 1 << 30);
        if (c->size[(unsigned char)letter]) return failure(error, ATTN_ERR_ARGUMENT, "sizes name %c twice", letter);
        c->size[(unsigned char)letter] = size;
        text = *end ? end + 1 : end;
    }
    for (const char *list = c->free_indices; list; list = list == c->free_indices ? c->summed : NULL)
        for (const char *at = list; *at; at++)
            if (!c->size[(unsigned char)*at]) return failure(error, ATTN_ERR_ARGUMENT, "sizes do not name %c", *at);
    return ATTN_OK;
}

/* ---- printing ---- */

static double elements(const contraction *c, const char *indices)
{
    double product = 1;
    for (; *indices; indices++) product *= (double)c->size[(unsigned char)*indices];
    return product;
}

/* "[b, h, i, d]", with sizes where they are known. */
static const char *shape_of(const contraction *c, const char *indices, char *text, size_t capacity)
{
    size_t used = (size_t)snprintf(text, capacity, "[");
    for (const char *at = indices; *at; at++) {
        const int64_t size = c->size[(unsigned char)*at];
        const char *gap = at == indices ? "" : ", ";
        if (size) used += (size_t)snprintf(text + used, capacity - used, "%s%c=%" PRId64, gap, *at, size);
        else used += (size_t)snprintf(text + used, capacity - used, "%s%c", gap, *at);
    }
    (void)snprintf(text + used, capacity - used, "]");
    return text;
}

/* "b h i j" */
static const char *spaced(const char *indices, char *text)
{
    size_t used = 0;
    for (const char *at = indices; *at; at++) {
        if (used) text[used++] = ' ';
        text[used++] = *at;
    }
    text[used] = 0;
    return used ? text : "none";
}

static void print_text(const contraction *c, const char *meaning, int sized)
{
    char text[600], other[600];
    printf("%s\n", c->text);
    if (meaning) printf("  %s\n", meaning);
    for (int k = 0; k < c->count; k++) printf("  tensor %d      %s\n", k + 1, shape_of(c, c->inputs[k], text, sizeof text));
    printf("  output        %s\n", c->output[0] ? shape_of(c, c->output, text, sizeof text) : "one number");
    printf("  free indices  %s\n", spaced(c->free_indices, text));
    printf("  summed over   %s\n", spaced(c->summed, text));
    printf("  in words      for every %s: ", c->output[0] ? spaced(c->output, text) : "output");
    if (c->summed[0]) printf("the sum over %s of ", spaced(c->summed, other));
    printf("the product of %d number%s\n", c->count, c->count == 1 ? "" : "s");
    printf("  cost          %d multiplication%s for each of %s", c->count - 1, c->count == 2 ? "" : "s",
           shape_of(c, strcat(strcpy(other, c->free_indices), c->summed), text, sizeof text));
    if (sized) printf(": %.6g", (c->count - 1) * elements(c, other));
    printf("\n");
    if (sized) printf("  numbers out   %.6g\n", elements(c, c->output));
}

static void print_json(const contraction *c, const char *meaning, int sized)
{
    cJSON *object = json_begin(), *inputs;
    char all[2 * LETTERS], one[2] = {0};
    json_text(object, "contraction", c->text);
    if (meaning) json_text(object, "meaning", meaning);
    inputs = json_list(object, "inputs");
    for (int k = 0; k < c->count; k++) cJSON_AddItemToArray(inputs, cJSON_CreateString(c->inputs[k]));
    json_text(object, "output", c->output);
    for (int k = 0; k < 2; k++) {
        cJSON *list = json_list(object, k ? "summation_indices" : "free_indices");
        for (const char *at = k ? c->summed : c->free_indices; *at; at++) {
            one[0] = *at;
            cJSON_AddItemToArray(list, cJSON_CreateString(one));
        }
    }
    if (sized) {
        json_number(object, "multiplications", (c->count - 1) * elements(c, strcat(strcpy(all, c->free_indices), c->summed)));
        json_number(object, "numbers_out", elements(c, c->output));
    }
    json_end(object);
}

/* ---- the command ---- */

typedef struct einsum_settings {
    const char *sizes;
    common_settings common;
} einsum_settings;

static const option_row einsum_options[] = {
    {"sizes", 0, "LIST", "size of each index: b=2,h=8,...", TEXT(einsum_settings, sizes)},
    {0},
};

/* 1 for indices: several tensors, an arrow, or at most NAME - 1 letters, such as ii. */
static int is_contraction(const char *word)
{
    return !strchr(word, '_') && (strchr(word, ',') || strstr(word, "->") || strlen(word) < NAME);
}

/* *found is NULL if the word is not a name but a contraction. */
static attn_status find_example(const char *word, const example **found, attn_error *error)
{
    char hint[120];
    nearest near;
    *found = NULL;
    nearest_init(&near, word);
    for (int k = 0; k < EXAMPLES; k++) {
        nearest_offer(&near, examples[k].name);
        if (strcmp(word, examples[k].name) == 0) *found = &examples[k];
    }
    if (*found || is_contraction(word)) return ATTN_OK;
    nearest_print(&near, "", hint, sizeof hint);
    return failure(error, ATTN_ERR_ARGUMENT,
                   "unknown name%s; `attn einsum --help` lists them; a contraction has a comma or an arrow, as in ij,jk->ik", hint);
}

int attn_cmd_einsum(int argc, char **argv)
{
    einsum_settings settings = {0};
    const option_group groups[] = {{"Contraction", einsum_options, &settings}, {0}};
    contraction c = {0};
    const example *named;
    attn_error error;
    int operand;
    const int early = options_begin(&usage, groups, &settings.common, argc, argv, 1, &operand);
    if (early >= 0) return early;
    attn_status status = find_example(argv[operand], &named, &error);
    if (status == ATTN_OK) status = read_contraction(&c, named ? named->contraction : argv[operand], &error);
    if (status == ATTN_OK && settings.sizes) status = read_sizes(&c, settings.sizes, &error);
    if (status != ATTN_OK) return command_fail(usage.name, argv[operand], &error);
    (settings.common.json ? print_json : print_text)(&c, named ? named->meaning : NULL, settings.sizes != NULL);
    return EXIT_DONE;
}
