/* SPDX-License-Identifier: MIT
 *
 * sample.c - see sample.h. */
#include "sample.h"

#include <math.h>
#include <stdlib.h>

typedef struct candidate {
    float logit;
    int token;
} candidate;

static int compare(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    if (a->logit != b->logit) return a->logit > b->logit ? -1 : 1;
    return a->token - b->token;
}

/* Uniform in [0, 1), from a seed and a position (splitmix64, Steele et al. 2014). */
static double uniform(uint64_t seed, int64_t position)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + (uint64_t)position;
    for (int i = 0; i < 2; i++) {
        z += 0x9E3779B97F4A7C15u;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
    }
    return (double)(z >> 11) * 0x1p-53;
}

static int most_likely(const float *logits, int64_t words)
{
    int best = 0;
    for (int64_t i = 1; i < words; i++)
        if (logits[i] > logits[best]) best = (int)i;
    return best;
}

int sample_token(const sampling *s, const float *logits, int64_t words, int64_t position)
{
    if (s->temperature == 0) return most_likely(logits, words);
    candidate *all = malloc((size_t)words * sizeof *all);
    double *weights = malloc((size_t)words * sizeof *weights);
    int token = -1;
    if (all && weights) {
        int64_t count = s->top_k > 0 && s->top_k < words ? s->top_k : words;
        double total = 0, kept = 0;
        for (int64_t i = 0; i < words; i++) all[i] = (candidate){logits[i], (int)i};
        qsort(all, (size_t)words, sizeof *all, compare);
        for (int64_t i = 0; i < count; i++)
            total += weights[i] = exp(((double)all[i].logit - (double)all[0].logit) / s->temperature);
        for (int64_t i = 0; i < count && kept < s->top_p * total; i++) {
            kept += weights[i];
            if (kept >= s->top_p * total) count = i + 1;
        }
        double left = uniform(s->seed, position) * kept;
        int64_t i = 0;
        while (i + 1 < count && left >= weights[i]) left -= weights[i++];
        token = all[i].token;
    }
    free(all);
    free(weights);
    return token;
}
