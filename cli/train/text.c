/* SPDX-License-Identifier: MIT
 *
 * text.c - learning to predict the next character of a text, with a Transformer.  The last tenth of the text is held out. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/text_buffer.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "testing/text/shown.h"
#include "train.h"

enum {
    BATCH = 16,
    LENGTH = 64,
    BLOCKS = 2,
    HEADS = 4,
    WIDTH = 64,
    HIDDEN = 256,
    MAX_BYTES = 1 << 26,
    MAX_KINDS = 1024,
    LEAST = 10 * (LENGTH + 1), /* characters: the last tenth has a window and its last target */
    BATCHES_HELD_OUT = 16,
    SAMPLE = 160 /* characters */
};

/* ---- the text ---- */

static attn_status read_bytes(const char *path, text_buffer *text, attn_error *error)
{
    char part[1 << 14];
    size_t count = 0;
    FILE *file = fopen(path, "rb");
    if (!file) return failure(error, ATTN_ERR_IO, "cannot open: %s", strerror(errno));
    errno = 0;
    while (text->count <= MAX_BYTES && (count = fread(part, 1, sizeof part, file)) > 0) text_add(text, part, count);
    const int bad = ferror(file), why = errno;
    (void)fclose(file);
    if (bad) return failure(error, ATTN_ERR_IO, "cannot be read: %s", strerror(why));
    if (text->count > MAX_BYTES) return failure(error, ATTN_ERR_UNSUPPORTED, "has more than %d bytes", MAX_BYTES);
    text_letter(text, 0);
    return text_status(text, "the text", error);
}

static int by_code(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The distinct codes in order; *kinds is their number. */
static uint32_t *distinct(const uint32_t *codes, int64_t count, int64_t *kinds)
{
    uint32_t *sorted = need_memory(count, sizeof *sorted);
    memcpy(sorted, codes, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_code);
    *kinds = 0;
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || sorted[i] != sorted[*kinds - 1]) sorted[(*kinds)++] = sorted[i];
    return sorted;
}

/* Characters as tokens: their numbers in the order of their codes. */
static attn_status number_characters(trainee *t, const char *bytes, size_t size, attn_error *error)
{
    uint32_t *codes = need_memory((int64_t)size, sizeof *codes);
    attn_status status = ATTN_OK;
    const char *at = bytes;
    while (at < bytes + size - 1 && status == ATTN_OK) { /* the last is the end */
        const char *from = at;
        const uint32_t code = *at ? next_code_point(&at) : 0;
        if (!code || (code == 0xfffd && at - from == 1))
            status = failure(error, ATTN_ERR_FORMAT, "byte %lld (0x%02x) is not of a text in UTF-8", (long long)(from - bytes),
                             (unsigned)(unsigned char)*from);
        codes[t->text_count++] = code;
    }
    if (status == ATTN_OK && t->text_count < LEAST)
        status = failure(error, ATTN_ERR_ARGUMENT, "has %" PRId64 " characters; at least %d are needed", t->text_count, LEAST);
    if (status != ATTN_OK) return free(codes), status;
    uint32_t *known = distinct(codes, t->text_count, &t->kinds);
    if (t->kinds > MAX_KINDS)
        status = failure(error, ATTN_ERR_UNSUPPORTED, "has %" PRId64 " different characters; at most %d can be learned", t->kinds,
                         MAX_KINDS);
    t->characters = need_memory(t->kinds, sizeof *t->characters);
    t->text = need_memory(t->text_count, sizeof *t->text);
    at = bytes;
    for (int64_t i = 0; i < t->text_count && status == ATTN_OK; i++) {
        const uint32_t *found = bsearch(&codes[i], known, (size_t)t->kinds, sizeof *known, by_code);
        const char *from = at;
        t->text[i] = (int)(found - known);
        (void)next_code_point(&at);
        memcpy(t->characters[t->text[i]], from, (size_t)(at - from));
    }
    free(known), free(codes);
    return status;
}

static attn_status begin(trainee *t, attn_error *error)
{
    text_buffer text = {0};
    attn_status status = read_bytes(t->path, &text, error);
    if (status == ATTN_OK) status = number_characters(t, text.bytes, text.count, error);
    t->digest = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < text.count; i++) t->digest = (t->digest ^ (unsigned char)text.bytes[i]) * UINT64_C(1099511628211);
    text_free(&text);
    if (status != ATTN_OK) return failure_about(error, t->path);
    const model_sizes s = {t->kinds, LENGTH, WIDTH, HEADS, HIDDEN, BLOCKS, BATCH};
    t->model = model_create(&s, t->seed, &t->options);
    if (!t->model) return failure(error, ATTN_ERR_MEMORY, "cannot allocate memory for the model");
    t->learner = model_learner(t->model);
    return ATTN_OK;
}

/* ---- learning ---- */

static int64_t learned(const trainee *t) { return t->text_count - t->text_count / 10; }

static void window(const trainee *t, int64_t from, int *tokens, int *targets)
{
    memcpy(tokens, t->text + from, LENGTH * sizeof *tokens);
    memcpy(targets, t->text + from + 1, LENGTH * sizeof *targets);
}

static attn_status step(trainee *t, double rate, double *loss, attn_error *error)
{
    int tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    outcome now = {0};
    for (int b = 0; b < BATCH; b++) {
        const int64_t from = (int64_t)(learn_random(&t->random) % (uint64_t)(learned(t) - LENGTH));
        window(t, from, tokens + b * LENGTH, targets + b * LENGTH);
    }
    const attn_status status = model_run(t->model, tokens, targets, rate, &now, error);
    *loss = now.loss;
    return status;
}

/* ---- what it has learned ---- */

/* One of the kinds, by the probabilities of the logits. */
static int draw_character(const float *logits, int64_t kinds, uint64_t *state)
{
    const double top = (double)logits[learn_most_likely(logits, kinds)];
    double sum = 0, at = 0;
    for (int64_t c = 0; c < kinds; c++) sum += exp((double)logits[c] - top);
    const double drawn = (double)learn_random(state) / 0x1p31 * sum;
    for (int c = 0; c < kinds; c++)
        if ((at += exp((double)logits[c] - top)) > drawn) return c;
    return (int)kinds - 1;
}

/* Writes on after the first window of the held-out part: each character is drawn by its probability. */
static attn_status write_sample(trainee *t, attn_error *error)
{
    int tokens[LENGTH];
    text_buffer text = {0};
    uint64_t state = t->seed;
    attn_status status = ATTN_OK;
    memcpy(tokens, t->text + learned(t), sizeof tokens);
    for (int n = 0; n < SAMPLE && status == ATTN_OK; n++) {
        const float *logits;
        status = model_read(t->model, tokens, &logits, error);
        if (status != ATTN_OK) break;
        memmove(tokens, tokens + 1, sizeof tokens - sizeof *tokens);
        tokens[LENGTH - 1] = draw_character(logits + (LENGTH - 1) * t->kinds, t->kinds, &state);
        text_string(&text, t->characters[tokens[LENGTH - 1]]);
    }
    text_letter(&text, 0);
    if (status == ATTN_OK) status = text_status(&text, "a sample", error);
    t->held_out.sample = text.bytes;
    return status;
}

static attn_status test(trainee *t, attn_error *error)
{
    int tokens[BATCH * LENGTH] = {0}, targets[BATCH * LENGTH];
    const int64_t first = learned(t), windows = (t->text_count - first - 1) / LENGTH;
    attn_status status = ATTN_OK;
    for (int64_t n = 0; n < windows && n < BATCHES_HELD_OUT * BATCH && status == ATTN_OK; n += BATCH) {
        outcome now = {0};
        for (int b = 0; b < BATCH; b++) {
            if (n + b < windows) window(t, first + (n + b) * LENGTH, tokens + b * LENGTH, targets + b * LENGTH);
            else
                for (int i = 0; i < LENGTH; i++) targets[b * LENGTH + i] = -1;
        }
        status = model_run(t->model, tokens, targets, 0, &now, error);
        t->held_out.tested += now.targets, t->held_out.right += now.right;
        t->held_out.loss += now.loss * (double)now.targets;
    }
    if (status == ATTN_OK) t->held_out.loss /= (double)t->held_out.tested;
    if (status == ATTN_OK) status = write_sample(t, error);
    if (status == ATTN_OK) status = train_look(t, t->text + first, BLOCKS, HEADS, LENGTH, error);
    t->labels = cJSON_CreateArray();
    for (int i = 0; i < LENGTH; i++) cJSON_AddItemToArray(t->labels, cJSON_CreateString(t->characters[t->text[first + i]]));
    return status;
}

const train_task train_text = {"text", "a Transformer predicts the next character of FILE", 1000, 3e-3, 0, 1, begin, step, test};
