/* SPDX-License-Identifier: MIT
 *
 * train_copy.c - a small model learns to copy and to reverse: the first token of a sequence says which, then come N tokens, then
 * the model writes its N.  At the end it is tested on held-out sequences.
 *
 *      train_copy [FOLDER [STEPS]]     writes loss and attention, .csv and .svg, in FOLDER (default: the current one, 600 steps)
 *
 * The same seed gives the same bits.  Exits with 1 if a sequence comes out wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "../curve/curve.h"
#include "model.h"

enum { N = 10, LETTERS = 16, COPY = LETTERS, REVERSE, VOCABULARY, LENGTH = 2 * N, BATCH = 64, STEPS = 600, HELD_OUT = 16 };
static const double top_rate = 3e-3;
static const uint64_t seed = 1, held_out_seed = 0x5eed0000u;

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Sequences [task, x_1 .. x_N, y_1 .. y_N-1]; the target of each position from x_N on is the next token. */
static void draw(uint64_t *state, int *tokens, int *targets)
{
    for (int b = 0; b < BATCH; b++, tokens += LENGTH, targets += LENGTH) {
        int word[2 * N];
        const int task = next_random(state) % 2 ? REVERSE : COPY;
        for (int i = 0; i < N; i++) word[i] = (int)(next_random(state) % LETTERS);
        for (int i = 0; i < N; i++) word[N + i] = task == COPY ? word[i] : word[N - 1 - i];
        tokens[0] = task;
        for (int i = 1; i < LENGTH; i++) tokens[i] = word[i - 1];
        for (int i = 0; i < LENGTH; i++) targets[i] = i < N ? -1 : word[i];
    }
}

/* Linear warm-up over the first tenth, then cosine decay. */
static double rate_at(int step, int steps)
{
    const double done = (double)step / steps;
    return done < 0.1 ? top_rate * done / 0.1 : top_rate * 0.5 * (1 + cos(3.141592653589793 * (done - 0.1) / 0.9));
}

static attn_status train(model *m, int steps, double *losses, attn_error *error)
{
    static int tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    uint64_t state = seed;
    for (int step = 0; step < steps; step++) {
        outcome now;
        draw(&state, tokens, targets);
        attn_status status = model_run(m, tokens, targets, rate_at(step + 1, steps), &now, error);
        if (status != ATTN_OK) return status;
        losses[step] = now.loss;
        if ((step + 1) % 10 == 0 || step + 1 == steps) curve_show_progress(step + 1, steps, now.loss);
    }
    return ATTN_OK;
}

/* Counts the held-out sequences with a right output, and writes the attention weights of the first of them. */
static attn_status test(model *m, const char *folder, int64_t *right, attn_error *error)
{
    static int tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    uint64_t state = held_out_seed;
    *right = 0;
    for (int n = 0; n < HELD_OUT; n++) {
        outcome now;
        draw(&state, tokens, targets);
        attn_status status = model_run(m, tokens, targets, 0, &now, error);
        if (status != ATTN_OK) return status;
        *right += now.sequences_right;
        if (n == 0 && !curve_write_weights(folder, "attention", "What the second block attends to", model_attention(m, 1), LENGTH))
            return ATTN_ERR_IO;
    }
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    const int steps = argc > 2 ? atoi(argv[2]) : STEPS;
    const sizes s = {VOCABULARY, LENGTH, 64, 4, 128, 2, BATCH};
    static double losses[STEPS];
    attn_error error = {.message = "a file cannot be written"};
    int64_t right = 0;
    if (steps < 1 || steps > STEPS) return fprintf(stderr, "train_copy: steps (%s) must be between 1 and %d\n", argv[2], STEPS), 2;
    if (!curve_make_folder(folder)) return fprintf(stderr, "train_copy: %s: cannot make this directory\n", folder), 2;
    model *m = model_create(&s, seed);
    if (!m) return fprintf(stderr, "train_copy: no memory\n"), 2;
    printf("%lld parameters; %d letters of %d kinds to copy or reverse; %d steps of %d sequences\n", (long long)model_parameters(m),
           N, LETTERS, steps, BATCH);
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
