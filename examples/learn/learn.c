/* SPDX-License-Identifier: MIT
 * learn.c - see learn.h. */
#include "learn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn/product.h"

/* ---- parameters ---- */

int64_t learn_tensor_add(learner *l, const char *name, int64_t rows, int64_t columns)
{
    learn_tensor *t = &l->tensors[l->tensor_count++];
    *t = (learn_tensor){.rank = columns ? 2 : 1, .shape = {rows, columns}, .at = l->count};
    (void)snprintf(t->name, sizeof t->name, "%s", name);
    l->count += columns ? rows * columns : rows;
    return t->at;
}

int learn_begin(learner *l)
{
    float **const all[] = {&l->values, &l->grads, &l->moment1, &l->moment2};
    int failed = 0;
    for (int n = 0; n < 4; n++) *all[n] = learn_floats(l->count, &failed);
    return !failed;
}

void learn_end(learner *l) { free(l->values), free(l->grads), free(l->moment1), free(l->moment2); }

float *learn_floats(int64_t count, int *failed)
{
    float *memory = calloc((size_t)count, sizeof *memory);
    if (!memory) *failed = 1;
    return memory;
}

/* ---- steps ---- */

void learn_step(learner *l, double rate)
{
    const double decay1 = l->decay1, decay2 = l->decay2;
    l->steps++;
    const double scale1 = 1 / (1 - pow(decay1, (double)l->steps)), scale2 = 1 / (1 - pow(decay2, (double)l->steps));
    for (int64_t i = 0; i < l->count; i++) {
        const double g = (double)l->grads[i], m = decay1 * (double)l->moment1[i] + (1 - decay1) * g;
        const double v = decay2 * (double)l->moment2[i] + (1 - decay2) * g * g;
        l->moment1[i] = (float)m, l->moment2[i] = (float)v;
        l->values[i] -= (float)(rate * m * scale1 / (sqrt(v * scale2) + l->epsilon));
    }
}

double learn_rate(int64_t step, int64_t planned, double top)
{
    const double done = (double)step / (double)planned, least = 0.02 * top;
    if (done < 0.1) return top * done / 0.1;
    if (done > 1) return least;
    return least + (top - least) * 0.5 * (1 + cos(3.141592653589793 * (done - 0.1) / 0.9));
}

void learn_multiply(learner *l, int64_t rows, int64_t columns, int64_t inner, attn_input a, attn_input b, attn_output c, int add)
{
    const attn_product_problem p = {.struct_size = sizeof p, .rows = rows, .columns = columns, .inner = inner, .add = add};
    const attn_product_tensors t = {.struct_size = sizeof t, .a = a, .b = b, .c = c};
    if (l->status == ATTN_OK) l->status = attn_product(&p, &t, l->options, &l->error);
}

/* ---- the loss ---- */

int learn_most_likely(const float *logits, int64_t kinds)
{
    int best = 0;
    for (int c = 1; c < kinds; c++) best = logits[c] > logits[best] ? c : best;
    return best;
}

double learn_loss(float *logits, const int *targets, int64_t rows, int64_t kinds, int64_t wanted, int *best)
{
    double loss = 0;
    for (int64_t r = 0; r < rows; r++) {
        float *z = logits + r * kinds;
        double sum = 0;
        best[r] = learn_most_likely(z, kinds);
        if (targets[r] < 0) {
            memset(z, 0, (size_t)kinds * sizeof *z);
            continue;
        }
        const double top = (double)z[best[r]];
        for (int64_t c = 0; c < kinds; c++) sum += exp((double)z[c] - top);
        loss += log(sum) + top - (double)z[targets[r]];
        for (int64_t c = 0; c < kinds; c++)
            z[c] = (float)((exp((double)z[c] - top) / sum - (c == targets[r] ? 1 : 0)) / (double)wanted);
    }
    return loss;
}

/* ---- random numbers ---- */

uint64_t learn_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

void learn_draw(float *w, int64_t count, double reach, uint64_t *state)
{
    for (int64_t i = 0; i < count; i++) w[i] = (float)(reach * ((double)(int64_t)learn_random(state) / (1 << 30) - 1));
}
