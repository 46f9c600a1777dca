/* SPDX-License-Identifier: MIT
 *
 * einsum.c - `attn einsum`: explains a contraction in Einstein notation, and computes it over the tensors of files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/commands.h"
#include "cli/base/file.h"
#include "cli/base/options.h"
#include "cli/base/tensor_file.h"
#include "cli/input/small_tensor.h"
#include "contract.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/nearest.h"

enum { NAME = 4 /* letters alone are a name from this length on */ };

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

static const char *example_name(int n) { return n < EXAMPLES ? examples[n].name : NULL; }

static void print_examples(void)
{
    printf("Contractions by name:\n");
    for (int k = 0; k < EXAMPLES; k++) printf("  %-26s %-18s %s\n", examples[k].name, examples[k].contraction, examples[k].meaning);
    printf("\n");
}

static const command_usage usage = {
    .name = "einsum",
    .synopsis = "CONTRACTION|NAME [FILE...] [options]",
    .summary = "Explains a contraction such as \"bhid,bhjd->bhij\": its free and summed indices, the shapes\n"
               "of its inputs and output, and its cost. Without ->, the indices that occur once are free,\n"
               "in alphabetical order; a single tensor with more than 3 indices needs the ->.\n"
               "With files, computes it over their tensors, in order: of all files, and in a file by name.\n",
    .notes = "Tensors are contracted from left to right, two at a time, in f64, by the library's matrix\n"
             "products. The output, o in OUT, has the type of the tensors if they share one of floats, else\n"
             "f64. With --backward, the gradients of all tensors follow from do: da for a tensor a.\n"
             "\n"
             "Examples:\n"
             "  attn einsum \"bhid,bhjd->bhij\" --sizes=b=2,h=8,i=1024,j=1024,d=64\n"
             "  attn einsum multihead_scores --json\n"
             "  attn einsum \"ij,jk->ik\" a.npy b.npy\n"
             "  attn einsum \"bhia,bhja->bhij\" layer.safetensors --tensors=q,k -o scores.npy\n",
    .more = print_examples,
    .word = example_name,
    .without = "seed",
    .operands = {"contraction"},
    .example = "attn einsum \"bhid,bhjd->bhij\"",
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

/* ---- the tensors ---- */

typedef struct einsum_settings {
    const char *sizes, *output, *tensors;
    int backward;
    common_settings common;
} einsum_settings;

static const option_row einsum_options[] = {
    {"sizes", 0, "LIST", "without files: size of each index: b=2,h=8,...", TEXT(einsum_settings, sizes)},
    {"tensors", 0, "LIST", "names of the tensors to use, in order: q,k", TEXT(einsum_settings, tensors)},
    {"output", 'o', "FILE", "output file: .safetensors, .npz or .npy",
     OUTPUT(einsum_settings, output, ".safetensors, .npz or .npy")},
    {"backward", 0, NULL, "compute the gradients of all tensors, from do", FLAG(einsum_settings, backward)},
    {0},
};

typedef struct einsum_work {
    const einsum_settings *settings;
    const char *meaning;
    contraction c;
    char *const *paths;
    int files;
    attn_archive *file[OPERANDS], *out;
    const attn_archive_tensor *tensor[OPERANDS], *grad_output; /* grad_output: do */
    double *numbers[OPERANDS];
    attn_dtype dtype; /* of the output */
    int rank;
    int64_t shape[TERM];
    double *result;
} einsum_work;

static const attn_archive_tensor *find_tensor(const einsum_work *w, const char *name)
{
    const attn_archive_tensor *found = NULL;
    for (int f = 0; f < w->files && !found; f++) found = attn_archive_find(w->file[f], name);
    return found;
}

/* Those that --tensors names. */
static attn_status choose_named(einsum_work *w, attn_error *error)
{
    int n = 0;
    for (const char *at = w->settings->tensors; *at; n++) {
        const size_t length = strcspn(at, ",");
        char *name = need_text(at, length);
        const attn_archive_tensor *found = find_tensor(w, name);
        if (n < w->c.count) w->tensor[n] = found;
        if (!found) failure(error, ATTN_ERR_ARGUMENT, "no file has a tensor '%.60s'", name);
        free(name);
        if (!found) return error->status;
        at += length + (at[length] == ',');
    }
    if (n == w->c.count) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT, "--tensors names %d tensors, and %.60s has %d", n, w->c.text, w->c.count);
}

/* All tensors of all files but do. */
static attn_status choose_all(einsum_work *w, attn_error *error)
{
    int64_t n = 0;
    for (int f = 0; f < w->files; f++)
        for (int64_t k = 0; k < attn_archive_count(w->file[f]); k++) {
            const attn_archive_tensor *t = attn_archive_at(w->file[f], k);
            if (w->settings->backward && t == w->grad_output) continue;
            if (n < w->c.count) w->tensor[n] = t;
            n++;
        }
    if (n == w->c.count) return ATTN_OK;
    return failure(error, ATTN_ERR_ARGUMENT,
                   "the files have %" PRId64 " tensors, and %.60s has %d; --tensors=A,B names those to use", n, w->c.text,
                   w->c.count);
}

static attn_status size_indices(einsum_work *w, attn_error *error)
{
    const char *from[LETTERS] = {NULL};
    for (int n = 0; n < w->c.count; n++) {
        const attn_archive_tensor *t = w->tensor[n];
        const char *indices = w->c.inputs[n];
        if (t->rank != (int)strlen(indices))
            return failure(error, ATTN_ERR_SHAPE, "tensor '%.60s' has %d axes, and its indices are %s", t->name, t->rank, indices);
        for (int k = 0; k < t->rank; k++) {
            const unsigned char letter = (unsigned char)indices[k];
            int64_t *size = &w->c.size[letter];
            if (!t->shape[k]) return failure(error, ATTN_ERR_SHAPE, "tensor '%.60s' has no numbers", t->name);
            if (!*size) *size = t->shape[k], from[letter] = t->name;
            if (*size != t->shape[k])
                return failure(error, ATTN_ERR_SHAPE, "index %c is %" PRId64 " on tensor '%.60s' and %" PRId64 " on tensor '%.60s'",
                               letter, *size, from[letter], t->shape[k], t->name);
        }
        if (n == 0) w->dtype = t->dtype;
        if (t->dtype != w->dtype || (t->dtype != ATTN_F32 && t->dtype != ATTN_F16 && t->dtype != ATTN_BF16)) w->dtype = ATTN_F64;
    }
    w->rank = (int)strlen(w->c.output);
    for (int k = 0; k < w->rank; k++) w->shape[k] = w->c.size[(unsigned char)w->c.output[k]];
    if (w->rank <= ATTN_MAX_RANK) return ATTN_OK;
    return failure(error, ATTN_ERR_UNSUPPORTED, "the output has %d axes; files have at most %d", w->rank, ATTN_MAX_RANK);
}

static attn_status check_grad_output(const einsum_work *w, attn_error *error)
{
    int fits = w->grad_output && w->grad_output->rank == w->rank;
    char shape[SHAPE_OF_ALL];
    for (int k = 0; k < w->rank && fits; k++) fits = w->grad_output->shape[k] == w->shape[k];
    if (!fits)
        return failure(error, ATTN_ERR_ARGUMENT, "--backward needs a tensor 'do' of the output's shape, %s",
                       contraction_shape(&w->c, w->c.output, shape));
    for (int n = 0; n < w->c.count; n++)
        for (int k = 0; k < n; k++)
            if (w->tensor[n] != w->tensor[k] && strcmp(w->tensor[n]->name, w->tensor[k]->name) == 0)
                return failure(error, ATTN_ERR_ARGUMENT, "two tensors are named '%.60s'; their gradients need different names",
                               w->tensor[n]->name);
    return ATTN_OK;
}

static attn_status read_tensors(einsum_work *w, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int f = 0; f < w->files && status == ATTN_OK; f++) {
        status = file_check_distinct(w->settings->output, w->paths[f], error);
        if (status == ATTN_OK) status = tensor_file_open(&w->file[f], w->paths[f], NULL, error);
    }
    if (status != ATTN_OK) return status;
    w->grad_output = find_tensor(w, "do");
    status = (w->settings->tensors ? choose_named : choose_all)(w, error);
    if (status == ATTN_OK) status = size_indices(w, error);
    if (status == ATTN_OK && w->settings->backward) status = check_grad_output(w, error);
    for (int n = 0; n < w->c.count && status == ATTN_OK; n++) w->numbers[n] = small_tensor_read(w->tensor[n]);
    return status;
}

/* ---- computing ---- */

/* A tensor that is used twice has one gradient. */
static attn_status add_gradients(einsum_work *w, const attn_options *options, attn_error *error)
{
    double *grad_output = small_tensor_read(w->grad_output);
    attn_status status = ATTN_OK;
    for (int n = 0; n < w->c.count && status == ATTN_OK; n++) {
        const attn_archive_tensor *t = w->tensor[n];
        int first = 0;
        while (w->tensor[first] != t) first++;
        if (first < n) continue;
        double *gradient = need_memory(small_tensor_count(t), sizeof *gradient);
        char *name = need_memory((int64_t)strlen(t->name) + 2, 1);
        for (int k = n; k < w->c.count && status == ATTN_OK; k++)
            if (w->tensor[k] == t)
                status = contract_backward(&w->c, k, (const double *const *)w->numbers, grad_output, options, gradient, error);
        name[0] = 'd';
        strcpy(name + 1, t->name);
        if (status == ATTN_OK) status = small_tensor_add(w->out, name, w->dtype, t->rank, t->shape, gradient, error);
        free(gradient), free(name);
    }
    free(grad_output);
    return status;
}

static attn_status compute(einsum_work *w, attn_error *error)
{
    const attn_options options = options_for_library(&w->settings->common);
    attn_status status = read_tensors(w, error);
    if (status == ATTN_OK) status = contract(&w->c, (const double *const *)w->numbers, &options, &w->result, error);
    if (status == ATTN_OK) status = attn_archive_create(&w->out, error);
    if (status == ATTN_OK) status = small_tensor_add(w->out, "o", w->dtype, w->rank, w->shape, w->result, error);
    return status == ATTN_OK && w->settings->backward ? add_gradients(w, &options, error) : status;
}

static void release(einsum_work *w)
{
    for (int f = 0; f < w->files; f++) attn_archive_destroy(w->file[f]);
    for (int n = 0; n < w->c.count; n++) free(w->numbers[n]);
    attn_archive_destroy(w->out);
    free(w->result);
}

/* ---- the command ---- */

static attn_status check_arguments(const einsum_settings *s, int files, attn_error *error)
{
    const char *without = s->output ? "-o" : s->tensors ? "--tensors" : s->backward ? "--backward" : NULL;
    if (files && s->sizes) return failure(error, ATTN_ERR_ARGUMENT, "--sizes has no effect on the tensors of files");
    if (!files && without)
        return failure(error, ATTN_ERR_ARGUMENT, "%s has no effect without a file; for example: attn einsum ij,jk->ik a.npy b.npy",
                       without);
    if (s->backward && s->output && strlen(s->output) > 4 && strcmp(s->output + strlen(s->output) - 4, ".npy") == 0)
        return failure(error, ATTN_ERR_ARGUMENT, "--backward writes several tensors, which an .npy file cannot have");
    return ATTN_OK;
}

static char *compose_json(const einsum_work *w)
{
    cJSON *object = json_begin(), *list;
    contraction_json(object, &w->c, w->meaning, w->files || w->settings->sizes);
    if (!w->files) return json_compose(object);
    list = json_list(object, "used");
    for (int n = 0; n < w->c.count; n++) cJSON_AddItemToArray(list, cJSON_CreateString(w->tensor[n]->name));
    small_tensor_json(w->out, json_list(object, "results"));
    if (w->settings->output) json_text(object, "output", w->settings->output);
    return json_compose(object);
}

static void print_text(const einsum_work *w)
{
    if (w->files) small_tensor_print(w->out, &w->settings->common, w->settings->output);
    else contraction_print(&w->c, w->meaning, w->settings->sizes != NULL);
}

int attn_cmd_einsum(int argc, char **argv)
{
    einsum_settings settings = {0};
    const option_group groups[] = {{"Contraction", einsum_options, &settings}, {0}};
    einsum_work w = {.settings = &settings};
    const example *named;
    attn_error error;
    int operand;
    const int early = options_begin(&usage, groups, &settings.common, argc, argv, 1 + OPERANDS, &operand);
    if (early >= 0) return early;
    const char *word = argv[operand];
    w.paths = argv + operand + 1, w.files = argc - operand - 1;
    attn_status status = find_example(word, &named, &error);
    if (status == ATTN_OK) status = contraction_read(&w.c, named ? named->contraction : word, &error);
    if (status == ATTN_OK && settings.sizes && !w.files) status = contraction_size(&w.c, settings.sizes, &error);
    if (status != ATTN_OK) return command_fail(usage.name, word, &error);
    w.meaning = named ? named->meaning : NULL;
    status = check_arguments(&settings, w.files, &error);
    if (status == ATTN_OK && w.files) status = compute(&w, &error);
    char *json = status == ATTN_OK && settings.common.json ? compose_json(&w) : NULL;
    status = file_finish(status, w.out, settings.output, json, &error);
    if (status == ATTN_OK && !settings.common.json) print_text(&w);
    if (status == ATTN_OK) small_tensor_tell(&settings.common, settings.output);
    release(&w);
    return command_end(status, usage.name, NULL, &error);
}
