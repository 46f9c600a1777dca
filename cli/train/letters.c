/* SPDX-License-Identifier: MIT
 *
 * letters.c - learning to copy or reverse letters: with a Transformer (copy, reverse), and with a recurrent decoder that attends
 * to the input (seq2seq). */
#include <stdlib.h>
#include <string.h>

#include "examples/learn/tasks.h"
#include "testing/text/failure.h"
#include "testing/text/json.h"
#include "train.h"

enum {
    BATCH = TRAIN_BATCH,
    LENGTH = TASK_LENGTH,
    N = TASK_LETTERS,
    BLOCKS = 2,
    HEADS = 4,
    WIDTH = 64,
    HIDDEN = 128,
    BATCHES_HELD_OUT = 16
};
static const uint64_t held_out_seed = 0x5eed0000u;

/* ---- a Transformer ---- */

static attn_status begin_model(trainee *t, attn_error *error)
{
    const model_sizes s = {TASK_VOCABULARY, LENGTH, WIDTH, HEADS, HIDDEN, BLOCKS, BATCH};
    t->model = model_create(&s, t->seed, &t->options);
    if (!t->model) return failure(error, ATTN_ERR_MEMORY, "cannot allocate memory for the model");
    t->learner = model_learner(t->model);
    return ATTN_OK;
}

static attn_status step_model(trainee *t, double rate, double *loss, attn_error *error)
{
    int tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    outcome now = {0};
    task_draw(&t->random, t->task->token, BATCH, tokens, targets);
    const attn_status status = model_run(t->model, tokens, targets, rate, &now, error);
    *loss = now.loss;
    return status;
}

attn_status train_look(trainee *t, const int *tokens, int64_t blocks, int64_t heads, int64_t length, attn_error *error)
{
    const float *logits;
    const int64_t size = heads * length * length;
    const attn_status status = model_read(t->model, tokens, &logits, error);
    if (status != ATTN_OK) return status;
    t->rank = 4;
    memcpy(t->shape, (int64_t[4]){blocks, heads, length, length}, sizeof t->shape);
    t->weights = need_memory(blocks * size, sizeof *t->weights);
    for (int64_t n = 0; n < blocks; n++)
        memcpy(t->weights + n * size, model_attention(t->model, n), (size_t)size * sizeof *t->weights);
    return ATTN_OK;
}

static attn_status test_model(trainee *t, attn_error *error)
{
    int tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    uint64_t state = held_out_seed;
    attn_status status = ATTN_OK;
    for (int n = 0; n < BATCHES_HELD_OUT && status == ATTN_OK; n++) {
        outcome now = {0};
        task_draw(&state, t->task->token, BATCH, tokens, targets);
        status = model_run(t->model, tokens, targets, 0, &now, error);
        t->held_out.right += now.sequences_right;
        t->held_out.tested += BATCH;
        if (n || status != ATTN_OK) continue;
        status = train_look(t, tokens, BLOCKS, HEADS, LENGTH, error);
        t->labels = cJSON_CreateArray();
        for (int i = 0; i < LENGTH; i++) {
            const char letter[2] = {(char)('a' + tokens[i]), 0};
            cJSON_AddItemToArray(t->labels, cJSON_CreateString(tokens[i] < TASK_KINDS ? letter : t->task->name));
        }
    }
    return status;
}

const train_task train_copy = {"copy",    "a Transformer copies ten letters", 400, 3e-3, TASK_COPY, 0, begin_model, step_model,
                               test_model};
const train_task train_reverse = {
    "reverse", "a Transformer writes ten letters backwards", 400, 3e-3, TASK_REVERSE, 0, begin_model, step_model, test_model};

/* ---- a recurrent decoder ---- */

static attn_status begin_decoder(trainee *t, attn_error *error)
{
    const decoder_sizes s = {TASK_KINDS, N, WIDTH, WIDTH, BATCH};
    t->decoder = decoder_create(&s, t->seed, &t->options, error);
    if (t->decoder) t->learner = decoder_learner(t->decoder);
    return t->decoder ? ATTN_OK : error->status;
}

static attn_status step_decoder(trainee *t, double rate, double *loss, attn_error *error)
{
    int inputs[BATCH * N], outputs[BATCH * N];
    task_draw_pairs(&t->random, BATCH, inputs, outputs);
    return decoder_learn(t->decoder, inputs, outputs, rate, loss, error);
}

/* The weights are the mean over all sequences: which position of the input a position of the output looks at. */
static attn_status test_decoder(trainee *t, attn_error *error)
{
    int inputs[BATCH * N], outputs[BATCH * N], written[BATCH * N];
    uint64_t state = held_out_seed;
    attn_status status = ATTN_OK;
    t->rank = 2;
    t->shape[0] = t->shape[1] = N;
    t->weights = need_memory((int64_t)N * N, sizeof *t->weights);
    for (int n = 0; n < BATCHES_HELD_OUT && status == ATTN_OK; n++) {
        task_draw_pairs(&state, BATCH, inputs, outputs);
        status = decoder_write(t->decoder, inputs, written, error);
        for (int b = 0; b < BATCH && status == ATTN_OK; b++) {
            t->held_out.right += memcmp(outputs + b * N, written + b * N, N * sizeof *outputs) == 0;
            for (int i = 0; i < N * N; i++)
                t->weights[i] += decoder_weights(t->decoder)[b * N * N + i] / (BATCH * BATCHES_HELD_OUT);
        }
        t->held_out.tested += BATCH;
    }
    return status;
}

const train_task train_seq2seq = {
    "seq2seq", "a decoder with additive attention does the same", 400, 1e-2, 0, 0, begin_decoder, step_decoder, test_decoder};
