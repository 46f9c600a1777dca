/* SPDX-License-Identifier: MIT
 *
 * tokens.c - x from the token embeddings of a model's file: the input of its first layer.  (That of a later one is the output of
 * the whole block before it, which is more than attention.) */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layer.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/nearest.h"

const char layer_x_of_tokens[] = "the embeddings of tokens, which the first layer of the model gets";

static const char embeddings[] =
    "token_embd.weight|model.embed_tokens.weight|embed_tokens.weight|transformer.wte.weight|wte.weight|"
    "gpt_neox.embed_in.weight|shared.weight|tok_embeddings.weight",
                  positions[] = "position_embd.weight|transformer.wpe.weight|wpe.weight", types[] = "token_types.weight";

/* ---- which tokens ---- */

/* The next item, up to a comma or blank; *length 0 at the end. */
static const char *next_item(const char *text, size_t *length)
{
    text += strspn(text, ", \t\n");
    *length = strcspn(text, ", \t\n");
    return text;
}

static int are_ids(const char *text) { return *text && strspn(text, "0123456789, \t\n") == strlen(text); }

static int64_t count_items(const char *text)
{
    int64_t count = 0;
    size_t length;
    for (text = next_item(text, &length); length; text = next_item(text + length, &length)) count++;
    return count;
}

/* The number of a word.  Vocabularies mark the blank before it: "\u2581" (SentencePiece) or "\u0120" (byte-pair encoding, whose
 * first word has none). */
static int64_t find_word(const attn_metadata_list *words, const char *word, size_t length, int first)
{
    static const char *const marks[2][3] = {{"\u0120", "\u2581", ""}, {"\u2581", "", "\u0120"}};
    for (int m = 0; m < 3; m++) {
        const char *mark = marks[first][m];
        const size_t size = strlen(mark);
        for (int64_t k = 0; k < words->count; k++)
            if (strncmp(words->items[k], mark, size) == 0 && strncmp(words->items[k] + size, word, length) == 0 &&
                !words->items[k][size + length])
                return k;
    }
    return -1;
}

static attn_status read_words(layer_work *w, const char *text, attn_error *error)
{
    attn_metadata_list *words = NULL;
    size_t length;
    char hint[100];
    if (!attn_archive_get_metadata(layer_weights_file(w), "tokenizer.ggml.tokens"))
        return failure(error, ATTN_ERR_ARGUMENT,
                       "--tokens: the file has no vocabulary (tokenizer.ggml.tokens); give numbers of tokens, such as 1,450,4996");
    attn_status status = attn_metadata_list_create(&words, layer_weights_file(w), "tokenizer.ggml.tokens", error);
    for (int64_t n = 0; status == ATTN_OK; text += length, n++) {
        text = next_item(text, &length);
        if (!length) break;
        w->ids[n] = find_word(words, text, length, n == 0);
        if (w->ids[n] >= 0) continue;
        char *word = need_text(text, length);
        nearest near;
        nearest_init(&near, word);
        for (int64_t k = 0; k < words->count; k++) nearest_offer(&near, words->items[k]);
        nearest_print(&near, "", hint, sizeof hint);
        status =
            failure(error, ATTN_ERR_ARGUMENT,
                    "--tokens: '%.40s' is not in the file's vocabulary%s; numbers of tokens name the parts of a word", word, hint);
        free(word);
    }
    attn_metadata_list_destroy(words);
    return status;
}

static attn_status read_ids(layer_work *w, const char *text, attn_error *error)
{
    size_t length;
    for (int64_t n = 0;; text += length, n++) {
        text = next_item(text, &length);
        if (!length) return ATTN_OK;
        if (length > 9)
            return failure(error, ATTN_ERR_ARGUMENT, "--tokens: '%.*s' is not the number of a token",
                           (int)(length > 40 ? 40 : length), text);
        w->ids[n] = strtoll(text, NULL, 10);
    }
}

/* ---- their rows ---- */

static attn_status add_rows(const layer_work *w, const attn_archive_tensor *table, const int64_t *rows, int64_t width, float *x,
                            attn_error *error)
{
    const size_t size = attn_dtype_size(table->dtype);
    const int is_table = table->rank == 2 && table->shape[1] == width &&
                         (table->dtype == ATTN_F32 || table->dtype == ATTN_F16 || table->dtype == ATTN_BF16);
    if (!is_table)
        return failure(error, ATTN_ERR_SHAPE, "tensor '%s' is not a table of embeddings [tokens, %" PRId64 "] of f32, f16 or bf16",
                       table->name, width);
    float *row = need_memory(width, sizeof *row);
    attn_status status = ATTN_OK;
    for (int64_t n = 0; n < w->id_count && status == ATTN_OK; n++) {
        const int64_t at = rows ? rows[n] : n;
        if (at >= table->shape[0])
            status = failure(error, ATTN_ERR_ARGUMENT, "--tokens: number %" PRId64 " is not below %" PRId64 ", the rows of '%s'",
                             at, table->shape[0], table->name);
        else
            status =
                attn_convert(width, (const char *)table->data + (size_t)(at * width) * size, table->dtype, row, ATTN_F32, error);
        for (int64_t i = 0; i < width && status == ATTN_OK; i++) x[n * width + i] += row[i];
    }
    free(row);
    return status;
}

attn_status layer_embed_tokens(layer_work *w, attn_error *error)
{
    const char *text = w->settings->tokens;
    const attn_archive *file = layer_weights_file(w);
    const attn_archive_tensor *table = family_find(file, "", embeddings), *places = family_find(file, "", positions);
    void *x = NULL;
    if (!text) return ATTN_OK;
    if (attn_archive_find(w->file, "x") || attn_archive_find(w->file, "query"))
        return failure(error, ATTN_ERR_ARGUMENT, "--tokens makes x, and the file has an x already");
    if (!table || family_find(file, "", types))
        return failure(error, table ? ATTN_ERR_UNSUPPORTED : ATTN_ERR_ARGUMENT,
                       "--tokens: %s; a file with x gives the input of the layer",
                       table ? "embeddings with types of tokens are not computed" : "the file has no table of token embeddings");
    w->id_count = count_items(text);
    if (!w->id_count) return failure(error, ATTN_ERR_ARGUMENT, "--tokens: no token is given");
    w->ids = need_memory(w->id_count, sizeof *w->ids);
    attn_status status = are_ids(text) ? read_ids(w, text, error) : read_words(w, text, error);
    if (status != ATTN_OK) return status;
    const int64_t width = table->rank == 2 ? table->shape[1] : 1, shape[2] = {w->id_count, width};
    status = attn_archive_allocate(w->own, "x", ATTN_F32, 2, shape, &x, error);
    if (status == ATTN_OK) status = add_rows(w, table, w->ids, width, x, error);
    for (int64_t i = 0; i < w->id_count * width && status == ATTN_OK && w->model.scaled_embeddings; i++)
        ((float *)x)[i] *= sqrtf((float)width);
    if (status == ATTN_OK && places) status = add_rows(w, places, NULL, width, x, error);
    w->embedding = table;
    return status;
}

attn_status layer_name_tokens(const layer_work *w, attn_error *error)
{
    attn_metadata_list *words = NULL;
    char number[24];
    if (!w->id_count) return ATTN_OK;
    if (attn_archive_get_metadata(layer_weights_file(w), "tokenizer.ggml.tokens") &&
        attn_metadata_list_create(&words, layer_weights_file(w), "tokenizer.ggml.tokens", error) != ATTN_OK)
        return error->status;
    json_need_memory();
    cJSON *list = cJSON_CreateArray();
    for (int64_t n = 0; n < w->id_count; n++) {
        const char *word = words && w->ids[n] < words->count ? words->items[w->ids[n]] : NULL;
        (void)snprintf(number, sizeof number, "%" PRId64, w->ids[n]);
        if (word && (strncmp(word, "\u0120", 2) == 0 || strncmp(word, "\u2581", 3) == 0)) word += *word == '\xC4' ? 2 : 3;
        cJSON_AddItemToArray(list, cJSON_CreateString(word && *word ? word : number));
    }
    char *text = cJSON_PrintUnformatted(list);
    attn_status status = attn_archive_set_metadata(w->out, "tokens", text, error);
    if (status == ATTN_OK) status = attn_archive_set_metadata(w->out, "x", layer_x_of_tokens, error);
    cJSON_free(text);
    cJSON_Delete(list);
    attn_metadata_list_destroy(words);
    return status;
}
