/* SPDX-License-Identifier: MIT
 *
 * train_copy.c - a small model learns to copy and to reverse: the first token of a sequence says which, then come N tokens, then
 * the model writes its N.  At the end it is tested on held-out sequences.
 *
 *      train_copy [FOLDER [STEPS]]     writes loss and attention, .csv and .svg, in FOLDER (default: the current one, 600 steps)
 *
 * The same seed gives the same bits.  Exits with 1 if a sequence comes out wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../curve/curve.h"
#include "../learn/tasks.h"
#include "model.h"

enum { LENGTH = TASK_LENGTH, BATCH = 64, STEPS = 600, HELD_OUT = 16, HEADS = 4 };
static const double top_rate = 3e-3;
static const uint64_t seed = 1, held_out_seed = 0x5eed0000u;

static attn_status train(model *m, int steps, double *losses, attn_error *error)
{
    static int tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    uint64_t state = seed;
    for (int step = 0; step < steps; step++) {
        outcome now;
        task_draw(&state, 0, BATCH, tokens, targets);
        attn_status status = model_run(m, tokens, targets, learn_rate(step + 1, steps, top_rate), &now, error);
        if (status != ATTN_OK) return status;
        losses[step] = now.loss;
        if ((step + 1) % 10 == 0 || step + 1 == steps) curve_show_progress(step + 1, steps, now.loss);
    }
    return ATTN_OK;
}

/* The attention weights of the second block for a sequence, averaged over the heads, in FOLDER/attention. */
static attn_status look(model *m, const int *tokens, const char *folder, attn_error *error)
{
    static float mean[LENGTH * LENGTH];
    const float *logits, *weights = model_attention(m, 1);
    const attn_status status = model_read(m, tokens, &logits, error);
    if (status != ATTN_OK) return status;
    for (int i = 0; i < HEADS * LENGTH * LENGTH; i++) mean[i % (LENGTH * LENGTH)] += weights[i] / HEADS;
    return curve_write_weights(folder, "attention", "What the second block attends to", mean, LENGTH) ? ATTN_OK : ATTN_ERR_IO;
}

/* Counts the held-out sequences with a right output, and writes the attention weights of the first of them. */
static attn_status test(model *m, const char *folder, int64_t *right, attn_error *error)
{
    static int tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    uint64_t state = held_out_seed;
    attn_status status = ATTN_OK;
    *right = 0;
    for (int n = 0; n < HELD_OUT && status == ATTN_OK; n++) {
        outcome now = {0};
        task_draw(&state, 0, BATCH, tokens, targets);
        status = model_run(m, tokens, targets, 0, &now, error);
        *right += now.sequences_right;
        if (status == ATTN_OK && n == 0) status = look(m, tokens, folder, error);
    }
    return status;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    const int steps = argc > 2 ? atoi(argv[2]) : STEPS;
    const model_sizes s = {TASK_VOCABULARY, LENGTH, 64, HEADS, 128, 2, BATCH};
    static double losses[STEPS];
    attn_error error = {.message = "a file cannot be written"};
    int64_t right = 0;
    if (steps < 1 || steps > STEPS) return fprintf(stderr, "train_copy: steps (%s) must be between 1 and %d\n", argv[2], STEPS), 2;
    if (!curve_make_folder(folder)) return fprintf(stderr, "train_copy: %s: cannot make this directory\n", folder), 2;
    model *m = model_create(&s, seed, NULL);
    if (!m) return fprintf(stderr, "train_copy: no memory\n"), 2;
    printf("%lld parameters; %d letters of %d kinds to copy or reverse; %d steps of %d sequences\n",
           (long long)model_learner(m)->count, TASK_LETTERS, TASK_KINDS, steps, BATCH);
    const clock_t begin = clock();
    attn_status status = train(m, steps, losses, &error);
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (status == ATTN_OK) status = test(m, folder, &right, &error);
    if (status == ATTN_OK && !curve_write(folder, "Loss while learning to copy and to reverse", losses, steps))
        status = ATTN_ERR_IO;
    model_destroy(m);
    if (status != ATTN_OK) return fprintf(stderr, "train_copy: %s: %s\n", folder, error.message), 2;
    printf("loss %.4f at first, %.17g at last; %.1f seconds of CPU time\n", losses[0], losses[steps - 1], seconds);
    printf("held out: %lld of %d sequences right\n", (long long)right, HELD_OUT * BATCH);
    printf("wrote loss and attention, .csv and .svg, in %s\n", folder);
    return right == HELD_OUT * BATCH ? 0 : 1;
}
