/* SPDX-License-Identifier: MIT
 *
 * logits.c - what a format of keys and values does to the logits of a model: a text's tokens, by numbers on standard input, run
 * through examples/generate's model over a cache of each format, rotated by attn_hadamard too, and the logits compared with those
 * over f32.
 *
 *      from=examples/generate
 *      cc -O2 -D_POSIX_C_SOURCE=200809L -Iinclude lab/formats/logits.c $from/model.c $from/attention.c $from/pages.c \
 *          $from/weights.c -lattn_io -lattn -lm
 *      example_generate MODEL.gguf --raw --ids --quiet --most=1 "$(cat TEXT)" | cut -d ">" -f 1 | ./a.out MODEL.gguf
 *
 * Prints the root of the mean square of the differences over that of the logits (without their mean), the mean of the
 * Kullback-Leibler divergence of the next token's probabilities, and how often the most likely token is the same.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/generate/model.h"

enum { MOST = 2048 };

static int tokens[MOST], count;

/* The logits of every token; the sequence comes in chunks, as a prompt and then token by token. */
static float *run(model *m, attn_dtype keys, attn_dtype values, int hadamard)
{
    pages p;
    attn_error error;
    const int64_t words = model_words(m);
    float *logits = malloc((size_t)(count * words) * sizeof *logits);
    if (!logits || !model_make_pages(m, 1, count, (count + 63) / 64, 64, keys, values, &p)) exit(1);
    p.hadamard = hadamard;
    for (int64_t done = 0, chunk; done < count; done += chunk) {
        chunk = done < count / 2 ? 32 : 1;
        if (chunk > count - done) chunk = count - done;
        pages_reserve(&p, 0, chunk);
        if (model_run(m, &p, 0, 1, tokens + done, &chunk, &chunk, logits + done * words, &error) != ATTN_OK) {
            printf("%s\n", error.message);
            exit(1);
        }
    }
    pages_free(&p);
    return logits;
}

static void compare(int64_t words, const float *exact, const float *got, const char *keys, const char *values, const char *rotated)
{
    double off = 0, size = 0, divergence = 0;
    int same = 0;
    for (int t = 0; t < count; t++) {
        const float *x = exact + t * words, *y = got + t * words;
        double mean = 0, sum_x = 0, sum_y = 0, most_x = -INFINITY, most_y = -INFINITY;
        int64_t best_x = 0, best_y = 0;
        for (int64_t w = 0; w < words; w++) {
            mean += (double)x[w] / (double)words;
            if ((double)x[w] > most_x) most_x = (double)x[w], best_x = w;
            if ((double)y[w] > most_y) most_y = (double)y[w], best_y = w;
        }
        for (int64_t w = 0; w < words; w++) {
            off += ((double)y[w] - (double)x[w]) * ((double)y[w] - (double)x[w]);
            size += ((double)x[w] - mean) * ((double)x[w] - mean);
            sum_x += exp((double)x[w] - most_x), sum_y += exp((double)y[w] - most_y);
        }
        for (int64_t w = 0; w < words; w++) {
            const double a = (double)x[w] - most_x - log(sum_x), b = (double)y[w] - most_y - log(sum_y);
            divergence += exp(a) * (a - b);
        }
        same += best_x == best_y;
    }
    printf("%-8s %-8s %-8s error %.4f   divergence %.5f   same token %.1f %%\n", keys, values, rotated, sqrt(off / size),
           divergence / count, 100.0 * same / count);
    (void)fflush(stdout);
}

int main(int argc, char **argv)
{
    static const attn_dtype kinds[][2] = {{ATTN_F16, ATTN_F16},         {ATTN_BF16, ATTN_BF16}, {ATTN_I8, ATTN_I8},
                                          {ATTN_Q8_0, ATTN_Q8_0},       {ATTN_Q8_0, ATTN_Q4_1}, {ATTN_F8_E4M3, ATTN_F8_E4M3},
                                          {ATTN_F8_E5M2, ATTN_F8_E5M2}, {ATTN_Q8_0, ATTN_Q4_0}, {ATTN_Q4_1, ATTN_Q4_1},
                                          {ATTN_Q4_0, ATTN_Q4_0},       {ATTN_Q4_1, ATTN_Q8_0}, {ATTN_Q4_1C, ATTN_Q4_1},
                                          {ATTN_Q4_1C, ATTN_Q8_0},      {ATTN_Q4_1C, ATTN_Q4_0}};
    attn_error error;
    model *m = argc == 2 ? model_open(argv[1], 2, &error) : NULL;
    if (!m) return printf("%s\n", argc == 2 ? error.message : "usage: logits MODEL.gguf"), 1;
    while (count < MOST && scanf("%d", &tokens[count]) == 1) count++;
    float *exact = run(m, ATTN_F32, ATTN_F32, 0);
    printf("%d tokens\n", count);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        for (int hadamard = 0; hadamard < 2; hadamard++) {
            float *got = run(m, kinds[i][0], kinds[i][1], hadamard);
            compare(model_words(m), exact, got, attn_dtype_name(kinds[i][0]), attn_dtype_name(kinds[i][1]),
                    hadamard ? "rotated" : "");
            free(got);
        }
    }
    free(exact);
    model_close(m);
    return 0;
}
