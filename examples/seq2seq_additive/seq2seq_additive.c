/* SPDX-License-Identifier: MIT
 *
 * seq2seq_additive.c - a decoder with additive attention learns to write a sequence backwards.  To write position i it has to
 * attend to position N+1-i of the input: its weights learn the antidiagonal.
 *
 *      seq2seq_additive [FOLDER [STEPS]]     writes loss and weights, .csv and .svg, in FOLDER (default: the current one;
 *                                            400 steps)
 *
 * The same seed gives the same bits.  Exits with 1 if the output for a held-out sequence is wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../curve/curve.h"
#include "../learn/tasks.h"
#include "decoder.h"

enum { N = TASK_LETTERS, BATCH = 64, STEPS = 400, HELD_OUT = 16 };
static const double top_rate = 1e-2;
static const uint64_t seed = 1, held_out_seed = 0x5eed0000u;

static attn_status train(decoder *d, int steps, double *losses, attn_error *error)
{
    static int inputs[BATCH * N], outputs[BATCH * N];
    uint64_t state = seed;
    for (int step = 0; step < steps; step++) {
        task_draw_pairs(&state, BATCH, inputs, outputs);
        const attn_status status = decoder_learn(d, inputs, outputs, learn_rate(step + 1, steps, top_rate), &losses[step], error);
        if (status != ATTN_OK) return status;
        if ((step + 1) % 10 == 0 || step + 1 == steps) curve_show_progress(step + 1, steps, losses[step]);
    }
    return ATTN_OK;
}

/* How many held-out sequences the decoder writes without a mistake, and its weights, averaged over all of them. */
static attn_status test(decoder *d, int *right, float *mean, attn_error *error)
{
    static int inputs[BATCH * N], outputs[BATCH * N], written[BATCH * N];
    uint64_t state = held_out_seed;
    *right = 0;
    memset(mean, 0, N * N * sizeof *mean);
    for (int n = 0; n < HELD_OUT; n++) {
        task_draw_pairs(&state, BATCH, inputs, outputs);
        const attn_status status = decoder_write(d, inputs, written, error);
        if (status != ATTN_OK) return status;
        for (int b = 0; b < BATCH; b++) {
            *right += memcmp(outputs + b * N, written + b * N, N * sizeof *outputs) == 0;
            for (int i = 0; i < N * N; i++) mean[i] += decoder_weights(d)[b * N * N + i] / (BATCH * HELD_OUT);
        }
    }
    return ATTN_OK;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    const int steps = argc > 2 ? atoi(argv[2]) : STEPS;
    const decoder_sizes s = {TASK_KINDS, N, 64, 64, BATCH};
    static double losses[STEPS];
    static float weights[N * N];
    attn_error error;
    int right = 0;
    if (steps < 1 || steps > STEPS)
        return fprintf(stderr, "seq2seq_additive: steps (%s) must be between 1 and %d\n", argv[2], STEPS), 2;
    if (!curve_make_folder(folder)) return fprintf(stderr, "seq2seq_additive: %s: cannot make this directory\n", folder), 2;
    decoder *d = decoder_create(&s, seed, NULL, &error);
    if (!d) return fprintf(stderr, "seq2seq_additive: %s\n", error.message), 2;
    printf("%lld parameters; %d letters of %d kinds to reverse; %d steps of %d sequences\n", (long long)decoder_learner(d)->count,
           N, TASK_KINDS, steps, BATCH);
    const clock_t begin = clock();
    attn_status status = train(d, steps, losses, &error);
    const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (status == ATTN_OK) status = test(d, &right, weights, &error);
    decoder_destroy(d);
    if (status != ATTN_OK) return fprintf(stderr, "seq2seq_additive: %s\n", error.message), 2;
    if (!curve_write(folder, "Loss while learning to reverse", losses, steps) ||
        !curve_write_weights(folder, "weights", "What each output looks at", weights, N))
        return fprintf(stderr, "seq2seq_additive: %s: a file cannot be written\n", folder), 2;
    printf("loss %.4f at first, %.17g at last; %.1f seconds of CPU time\n", losses[0], losses[steps - 1], seconds);
    printf("held out: %d of %d sequences right\n", right, HELD_OUT * BATCH);
    printf("wrote loss and weights, .csv and .svg, in %s\n", folder);
    return right == HELD_OUT * BATCH ? 0 : 1;
}
