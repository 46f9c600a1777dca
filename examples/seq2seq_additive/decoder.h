/* SPDX-License-Identifier: MIT
 *
 * decoder.h - a small sequence-to-sequence model: an encoder that turns the tokens of the input into states h, a recurrent decoder
 * with states s, and additive attention (Bahdanau et al. 2015) from s to h; Adam (Kingma and Ba 2015).  All of it on attn.h
 * and product.h.
 *
 *      h_j = tanh(E_x[x_j] + P_x[j])                      s_i = tanh(E_y[y_(i-1)] + P_y[i] + U s_(i-1))
 *      a_ij = softmax_j(w.tanh(W s_i + V h_j + b))        c_i = sum_j a_ij h_j        logits_i = O [s_i; c_i] + b_o
 *
 * The state does not read the context (Luong et al. 2015, section 3), so all queries of a sequence are one call of attention. */
#ifndef DECODER_H
#define DECODER_H

#include <stdint.h>

#include "../learn/learn.h"
#include "attn/attn.h"

typedef struct decoder_sizes {
    int64_t vocabulary, length; /* number of tokens, and their number in a sequence; the token `vocabulary` begins an output */
    int64_t width, hidden;      /* channels of the states; units of the score */
    int64_t batch;
} decoder_sizes;

typedef struct decoder decoder;

/* The options are those of all products, and but for the threads of attention; borrowed, may be NULL.  NULL if memory runs out or
 * attention has no plan; *error says which. */
decoder *decoder_create(const decoder_sizes *s, uint64_t seed, const attn_options *options, attn_error *error);
void decoder_destroy(decoder *d);

/* The parameters, to be read and written by others. */
learner *decoder_learner(decoder *d);

/* One step of Adam on inputs and outputs [batch][length]; *loss is the mean of -log p(token). */
attn_status decoder_learn(decoder *d, const int *inputs, const int *outputs, double rate, double *loss, attn_error *error);

/* Writes outputs [batch][length], token by token: each step reads the token that the previous one wrote. */
attn_status decoder_write(decoder *d, const int *inputs, int *outputs, attn_error *error);

/* The weights of the last step of decoder_write: [batch][length of the output][length of the input]. */
const float *decoder_weights(const decoder *d);

#endif
