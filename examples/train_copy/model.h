/* SPDX-License-Identifier: MIT
 *
 * model.h - a small trainable causal Transformer: pre-norm blocks (Xiong et al. 2020) of libattn's attention layer and a hidden
 * layer with ReLU; Adam (Kingma and Ba 2015).  All of it on the public interface of libattn_layers. */
#ifndef MODEL_H
#define MODEL_H

#include <stdint.h>

#include "../learn/learn.h"
#include "attn/layers.h"

typedef struct model_sizes {
    int64_t vocabulary, length; /* number of tokens; tokens of a sequence */
    int64_t width, heads, hidden, blocks;
    int64_t batch;
} model_sizes;

typedef struct model model;

/* The options are those of all attention and products; borrowed, may be NULL.  NULL if memory runs out. */
model *model_create(const model_sizes *s, uint64_t seed, const attn_options *options);
void model_destroy(model *m);

/* The parameters, to be read and written by others. */
learner *model_learner(model *m);

typedef struct outcome {
    double loss;             /* mean of -log p(target) over the targets */
    int64_t targets, right;  /* right: targets that were the most likely token */
    int64_t sequences_right; /* sequences in which all were */
} outcome;

/*
 * Reads tokens [batch][length] and reports how well each predicts its target [batch][length] (-1: no target).  With rate > 0 it
 * also learns: one step of Adam.  Returns ATTN_OK, or the error of a layer or product.
 */
attn_status model_run(model *m, const int *tokens, const int *targets, double rate, outcome *result, attn_error *error);

/* Reads one sequence of tokens [length]; *logits [length][vocabulary] are those of the token after each. */
attn_status model_read(model *m, const int *tokens, const float **logits, attn_error *error);

/* The attention weights of block n in the last model_read: [heads][length][length]. */
const float *model_attention(const model *m, int64_t n);

#endif
