/* SPDX-License-Identifier: MIT
 * seq2seq.h - types and functions shared by the files of the sequence-to-sequence modules. */
#ifndef ATTN_LAYERS_SEQ2SEQ_H
#define ATTN_LAYERS_SEQ2SEQ_H

#include "attn/seq2seq.h"
#include "call.h"

enum { SCORE_WEIGHT, STATE_WEIGHT, MEMORY_WEIGHT, HIDDEN_BIAS, COMBINE, MODULE_TENSORS };

/* attn_seq2seq as an inner layer of one head, and what follows it. */
typedef struct module {
    attn_dtype dtype;
    int64_t state, memory, hidden, output; /* output 0: the output is the context */
    attn_score_kind score;
    attn_problem attention;
    attn_layer between; /* its attention points to the one above, so a module must not be moved */
    char *w[MODULE_TENSORS];
    weight_slot weights[MODULE_TENSORS]; /* their slots, in the order of attn_seq2seq_weights */
} module;

attn_status attn_module_resolve(const attn_seq2seq *given, module *m, attn_error *error);
/* Fills in w and weights; what: "weights", "gradients", for messages. */
attn_status attn_module_bind(module *m, const char *what, const attn_seq2seq_weights *weights, weights_role role,
                             attn_error *error);
/* Bytes of [context; state] and of y, of all rows; 0 if the output is the context. */
attn_status attn_module_bytes(const module *m, int64_t batch, int64_t len_q, int64_t *joined, int64_t *y, attn_error *error);
/* Weights, or gradients, of the inner layer. */
attn_layer_weights attn_module_weights(const module *m);

#endif
