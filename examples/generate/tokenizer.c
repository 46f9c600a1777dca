/* SPDX-License-Identifier: MIT
 *
 * tokenizer.c - see tokenizer.h.  Bytes in the file's tokens are written as printable characters, GPT-2's table; they are turned
 * back into bytes once, so that all else works on bytes and numbers of tokens.
 */
#include "tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "words.h"

enum { CONTROL = 3, USER = 4 }; /* token_type of special tokens */

typedef struct piece {
    const char *bytes;
    size_t length;
    int token;
} piece;

/* Two tokens that follow each other become one; those of the lowest rank first. */
typedef struct merge {
    int left, right, result;
    int64_t rank;
} merge;

struct tokenizer {
    int64_t words, merges;
    piece *pieces;          /* [words], by token */
    piece *sorted;          /* [words], by bytes */
    merge *merge;           /* sorted by left and right */
    char *memory;           /* of the bytes */
    unsigned char *special; /* [words] */
    int *specials;          /* those that are */
    int64_t special_count;
    int single_digits;
    int of_byte[256]; /* -1: none */
};

static int compare_bytes(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

static int compare_pieces(const void *left, const void *right)
{
    const piece *a = left, *b = right;
    const int order = compare_bytes(a->bytes, a->length, b->bytes, b->length);
    return order ? order : (a->token > b->token) - (a->token < b->token);
}

static int compare_merges(const void *left, const void *right)
{
    const merge *a = left, *b = right;
    if (a->left != b->left) return a->left < b->left ? -1 : 1;
    return (a->right > b->right) - (a->right < b->right);
}

int tokenizer_find(const tokenizer *t, const char *bytes, size_t length)
{
    int64_t low = 0, high = t->words;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        const piece *p = &t->sorted[middle];
        if (compare_bytes(p->bytes, p->length, bytes, length) < 0) low = middle + 1;
        else high = middle;
    }
    const piece *p = &t->sorted[low];
    return low < t->words && !compare_bytes(p->bytes, p->length, bytes, length) ? p->token : -1;
}

/* Bytes that print stand for themselves, the other 68 for the characters from 256 on. */
static int byte_of(int character)
{
    int next = 256;
    for (int byte = 0; byte < 256; byte++) {
        const int prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
        if (character == (prints ? byte : next)) return byte;
        next += !prints;
    }
    return -1;
}

/* Turns characters into the bytes that they stand for, from `text` up to `end`; a character that stands for none is kept. */
static size_t to_bytes(const char *text, const char *end, char *bytes)
{
    size_t used = 0;
    while (text < end) {
        const unsigned char first = (unsigned char)*text;
        const int size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
        const int character = size == 1 ? first : size == 2 ? (first & 31) << 6 | (text[1] & 63) : -1;
        const int byte = byte_of(character);
        if (byte >= 0) bytes[used++] = (char)byte;
        for (int i = 0; byte < 0 && i < size; i++) bytes[used++] = text[i];
        text += size;
    }
    return used;
}

static int fail(attn_error *error, const char *message)
{
    error->status = ATTN_ERR_FORMAT;
    (void)snprintf(error->message, sizeof error->message, "%s", message);
    return 0;
}

static int read_pieces(tokenizer *t, const attn_metadata_list *texts, const attn_metadata_list *types, attn_error *error)
{
    size_t bytes = 1;
    t->words = texts->count;
    for (int64_t i = 0; i < t->words; i++) bytes += strlen(texts->items[i]);
    t->pieces = calloc((size_t)t->words + 1, sizeof *t->pieces);
    t->sorted = calloc((size_t)t->words + 1, sizeof *t->sorted);
    t->special = calloc((size_t)t->words + 1, 1);
    t->specials = calloc((size_t)t->words + 1, sizeof *t->specials);
    t->memory = malloc(bytes);
    if (!t->pieces || !t->sorted || !t->special || !t->specials || !t->memory) return fail(error, "cannot allocate memory");
    if (types->count != t->words) return fail(error, "token_type and tokens have different lengths");
    char *at = t->memory;
    for (int64_t i = 0; i < t->words; i++) {
        const char *text = texts->items[i];
        const int type = atoi(types->items[i]);
        t->special[i] = (type == CONTROL || type == USER) && *text;
        if (t->special[i]) t->specials[t->special_count++] = (int)i;
        t->pieces[i] = (piece){.bytes = at, .length = strlen(text), .token = (int)i};
        if (t->special[i]) memcpy(at, text, strlen(text));
        else t->pieces[i].length = to_bytes(text, text + strlen(text), at);
        at += t->pieces[i].length;
    }
    memcpy(t->sorted, t->pieces, (size_t)t->words * sizeof *t->sorted);
    qsort(t->sorted, (size_t)t->words, sizeof *t->sorted, compare_pieces);
    for (int byte = 0; byte < 256; byte++) {
        const char one = (char)byte;
        t->of_byte[byte] = tokenizer_find(t, &one, 1);
    }
    return 1;
}

static int read_merges(tokenizer *t, const attn_metadata_list *texts, attn_error *error)
{
    t->merges = texts->count;
    t->merge = calloc((size_t)t->merges + 1, sizeof *t->merge);
    if (!t->merge) return fail(error, "cannot allocate memory");
    for (int64_t i = 0; i < t->merges; i++) {
        const char *text = texts->items[i], *space = strchr(text, ' ');
        char *bytes = malloc(strlen(text) + 1);
        if (!bytes) return fail(error, "cannot allocate memory");
        merge *m = &t->merge[i];
        *m = (merge){.left = -1, .right = -1, .result = -1, .rank = i};
        if (space) {
            const size_t left = to_bytes(text, space, bytes), right = to_bytes(space + 1, text + strlen(text), bytes + left);
            m->left = tokenizer_find(t, bytes, left);
            m->right = tokenizer_find(t, bytes + left, right);
            m->result = tokenizer_find(t, bytes, left + right);
        }
        free(bytes);
        if (m->left < 0 || m->right < 0 || m->result < 0) return fail(error, "a merge is not of two tokens to one");
    }
    qsort(t->merge, (size_t)t->merges, sizeof *t->merge, compare_merges);
    return 1;
}

tokenizer *tokenizer_read(const attn_archive *file, attn_error *error)
{
    const char *model = attn_archive_get_metadata(file, "tokenizer.ggml.model"),
               *pre = attn_archive_get_metadata(file, "tokenizer.ggml.pre");
    attn_metadata_list *texts = NULL, *types = NULL, *merges = NULL;
    tokenizer *t = calloc(1, sizeof *t);
    int good = t ? 1 : fail(error, "cannot allocate memory");
    if (good && (!model || strcmp(model, "gpt2") != 0))
        good = fail(error, "tokenizer.ggml.model is not gpt2: no byte-pair encoding");
    if (good && pre && strcmp(pre, "smollm") != 0 && strcmp(pre, "gpt-2") != 0)
        good = fail(error, "tokenizer.ggml.pre, the pattern of words, is neither smollm nor gpt-2");
    good = good && attn_metadata_list_create(&texts, file, "tokenizer.ggml.tokens", error) == ATTN_OK &&
           attn_metadata_list_create(&types, file, "tokenizer.ggml.token_type", error) == ATTN_OK &&
           attn_metadata_list_create(&merges, file, "tokenizer.ggml.merges", error) == ATTN_OK;
    if (good) t->single_digits = pre && !strcmp(pre, "smollm");
    good = good && read_pieces(t, texts, types, error) && read_merges(t, merges, error);
    attn_metadata_list_destroy(texts);
    attn_metadata_list_destroy(types);
    attn_metadata_list_destroy(merges);
    if (good) return t;
    tokenizer_free(t);
    return NULL;
}

void tokenizer_free(tokenizer *t)
{
    if (!t) return;
    free(t->pieces);
    free(t->sorted);
    free(t->merge);
    free(t->memory);
    free(t->special);
    free(t->specials);
    free(t);
}

int64_t tokenizer_words(const tokenizer *t) { return t->words; }

const char *tokenizer_bytes(const tokenizer *t, int token, size_t *length)
{
    *length = t->pieces[token].length;
    return t->pieces[token].bytes;
}

int tokenizer_is_special(const tokenizer *t, int token) { return t->special[token]; }

static const merge *merge_of(const tokenizer *t, int left, int right)
{
    const merge key = {.left = left, .right = right};
    return bsearch(&key, t->merge, (size_t)t->merges, sizeof key, compare_merges);
}

/* One token for each byte, then merges in the order of their ranks. */
static int64_t encode_word(const tokenizer *t, const char *word, size_t length, int *tokens)
{
    int64_t count = 0;
    for (size_t i = 0; i < length; i++) {
        const int token = t->of_byte[(unsigned char)word[i]];
        if (token >= 0) tokens[count++] = token;
    }
    for (;;) {
        const merge *best = NULL;
        int64_t at = 0;
        for (int64_t i = 0; i + 1 < count; i++) {
            const merge *m = merge_of(t, tokens[i], tokens[i + 1]);
            if (m && (!best || m->rank < best->rank)) best = m, at = i;
        }
        if (!best) return count;
        tokens[at] = best->result;
        memmove(tokens + at + 1, tokens + at + 2, (size_t)(count - at - 2) * sizeof *tokens);
        count--;
    }
}

/* The special token with which a text begins, or -1. */
static int special_at(const tokenizer *t, const char *text)
{
    int found = -1;
    for (int64_t i = 0; i < t->special_count; i++) {
        const piece *p = &t->pieces[t->specials[i]];
        const int here = !strncmp(text, p->bytes, p->length);
        if (here && (found < 0 || p->length > t->pieces[found].length)) found = p->token;
    }
    return found;
}

int64_t tokenizer_encode(const tokenizer *t, const char *text, int *tokens)
{
    int64_t count = 0;
    while (*text) {
        const int special = special_at(t, text);
        size_t plain = 0; /* bytes before the next special token */
        if (special >= 0) {
            tokens[count++] = special;
            text += t->pieces[special].length;
            continue;
        }
        do plain++;
        while (text[plain] && special_at(t, text + plain) < 0);
        for (size_t word; plain; plain -= word, text += word) {
            word = words_first(text, plain, t->single_digits);
            count += encode_word(t, text, word, tokens + count);
        }
    }
    return count;
}
