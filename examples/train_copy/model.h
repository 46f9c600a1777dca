/* SPDX-License-Identifier: MIT
 *
 * model.h - a small trainable causal Transformer: pre-norm blocks (Xiong et al. 2020) of libattn's attention layer and a hidden
 * layer with ReLU; Adam (Kingma and Ba 2015).  All of it on the public interface of libattn_layers. */
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#include "attn/layers.h"

typedef struct sizes {
    int64_t vocabulary, length; /* number of tokens; tokens of a sequence */
    int64_t width, heads, hidden, blocks;
    int64_t batch;
} sizes;

typedef struct model model;

/* NULL if memory runs out. */
model *model_create(const sizes *s, uint64_t seed);
void model_destroy(model *m);

int64_t model_parameters(const model *m);

typedef struct outcome {
    double loss;             /* mean of -log p(target) over the targets */
    int64_t sequences_right; /* sequences whose targets were all the most likely tokens */
} outcome;

/*
 * Reads tokens [batch][length] and reports how well each predicts its target [batch][length] (-1: no target).  With rate > 0 it
 * also learns: one step of Adam.  Returns ATTN_OK, or the layer's error.
 */
attn_status model_run(model *m, const int *tokens, const int *targets, double rate, outcome *result, attn_error *error);

/* The attention weights of block n, averaged over its heads, in the last run with rate <= 0: [batch][length][length]. */
const float *model_attention(const model *m, int64_t n);

#endif
