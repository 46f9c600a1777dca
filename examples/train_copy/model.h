/* SPDX-License-Identifier: MIT
 *
 * model.h - a small causal Transformer that learns: pre-norm blocks (Xiong et al. 2020) of libattn's attention layer and a hidden
 * layer with ReLU; Adam (Kingma and Ba 2015).  All of it on the public interface of libattn_layers. */
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#include "attn/layers.h"

typedef struct sizes {
    int64_t vocabulary, length; /* tokens there are; tokens of a sequence */
    int64_t width, heads, hidden, blocks;
    int64_t batch;
} sizes;

typedef struct model model;

/* NULL where there is no memory. */
model *model_create(const sizes *s, uint64_t seed);
void model_destroy(model *m);

int64_t model_parameters(const model *m);

typedef struct outcome {
    double loss;             /* mean of -log p(target) over the targets */
    int64_t sequences_right; /* all targets of which were the most likely tokens */
} outcome;

/*
 * Reads tokens [batch][length] and tells how well each predicts its target [batch][length] (-1: none is wanted).  With rate > 0 it
 * also learns: one step of Adam.  ATTN_OK, or what the layer said.
 */
attn_status model_run(model *m, const int *tokens, const int *targets, double rate, outcome *result, attn_error *error);

/* The attention weights of block n, averaged over its heads, in the last run that did not learn: [batch][length][length]. */
const float *model_attention(const model *m, int64_t n);

#endif
