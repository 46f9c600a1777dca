/* SPDX-License-Identifier: MIT
 *
 * seq2seq.h - attention in encoder-decoder models: the states of the decoder attend to the vectors that the encoder produced, the
 * memory.  Part of libattn_layers; conventions of attn.h hold.
 */
#ifndef ATTN_SEQ2SEQ_H
#define ATTN_SEQ2SEQ_H

#include "attn/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One module, without its weights.  `score` is how a state h and a vector m of the memory are compared:
 *
 *      ATTN_SCORE_DOT        h.m                                      dim_state = dim_memory   } Luong et al. 2015, section 3.1
 *      ATTN_SCORE_GENERAL    h.(w m)                                                           }
 *      ATTN_SCORE_ADDITIVE   w.tanh(state h + memory m + bias)        Bahdanau et al. 2015, section A.1.2; with [state memory] as
 *                                                                     one matrix it is Luong's concat
 *
 * `attention` has the other options, as in attn_layer (the lengths of the sources are the tensor lengths_kv); its score's kind and
 * dims must be 0, and tensors->attention must not have score_matrix, grad_score_matrix or cu_seqlens.  The scale is 1 unless
 * `attention` sets it.
 */
typedef struct attn_seq2seq {
    size_t struct_size; /* sizeof(attn_seq2seq) */
    attn_dtype dtype;   /* of inputs, weights and outputs: ATTN_F32 (default) or ATTN_F64 */
    attn_score_kind score;
    int64_t dim_state;  /* channels of a state of the decoder */
    int64_t dim_memory; /* channels of the memory */
    int64_t dim_hidden; /* additive: rows of `state` and `memory`; else 0 */
    int64_t dim_output; /* 0: the output is the context; else the channels of tanh(combine [context; state]) (ibid., equation 5) */
    const attn_problem *attention;
    int64_t reserved[4]; /* must be 0 */
} attn_seq2seq;

/* One slot per tensor, [out, in], dense, of the module's dtype.  Read; as gradients, those present are written.  Weights that the
 * module does not have are absent. */
typedef struct attn_seq2seq_weights {
    size_t struct_size;  /* sizeof(attn_seq2seq_weights) */
    attn_output w;       /* general: [1, 1, dim_state, dim_memory]; additive: [1, 1, 1, dim_hidden] */
    attn_output state;   /* [1, 1, dim_hidden, dim_state] */
    attn_output memory;  /* [1, 1, dim_hidden, dim_memory] */
    attn_output bias;    /* [1, 1, 1, dim_hidden]; absent: none */
    attn_output combine; /* [1, 1, dim_output, dim_memory + dim_state] */
} attn_seq2seq_weights;

/*
 *      s_ij = score(h_i, m_j)      context_i = sum_j softmax(s_i)_j m_j      y_i = context_i, or tanh(combine [context_i; h_i])
 *
 * tensors as in attn_layer_forward: query is the states [batch, len_q, dim_state], all steps or one; key is the memory [batch,
 * len_kv, dim_memory]; value must be absent; weights_mean has the weights, [batch, len_q, len_kv]; saved has
 * attn_layer_counts.saved_bytes.  Returns what attn_layer_forward returns.
 */
ATTN_API attn_status attn_seq2seq_forward(const attn_seq2seq *module, const attn_seq2seq_weights *weights,
                                          const attn_layer_tensors *tensors, attn_error *error);

/* All gradients in one call, like attn_layer_backward: grad_query of the states, grad_key of the memory. */
ATTN_API attn_status attn_seq2seq_backward(const attn_seq2seq *module, const attn_seq2seq_weights *weights,
                                           const attn_layer_tensors *tensors, const attn_seq2seq_weights *gradients,
                                           attn_error *error);

/*
 * Decoding step by step: the part of the scores that depends on the memory alone is computed once, into a cache of heads_kv 1,
 * dim_qk dim_hidden (additive) or dim_memory, and dim_v dim_memory.  attn_seq2seq_remember appends tensors->key to it;
 * attn_seq2seq_step reads it, and computes what attn_seq2seq_forward computes for these states.  Lengths of the sources are in
 * cache->lengths instead of lengths_kv.
 */
ATTN_API attn_status attn_seq2seq_remember(const attn_seq2seq *module, const attn_seq2seq_weights *weights, const attn_cache *cache,
                                           const attn_layer_tensors *tensors, attn_error *error);
ATTN_API attn_status attn_seq2seq_step(const attn_seq2seq *module, const attn_seq2seq_weights *weights, const attn_cache *cache,
                                       const attn_layer_tensors *tensors, attn_error *error);

/* weights determines whether there is a bias; NULL: none. */
ATTN_API attn_status attn_seq2seq_count(const attn_seq2seq *module, int64_t batch, int64_t len_q, int64_t len_kv,
                                        const attn_seq2seq_weights *weights, attn_layer_counts *counts, attn_error *error);

/* Like attn_layer_initialise, each matrix by its own rows and columns, as in a layer of one head; w of an additive score is a
 * matrix of one row.  ATTN_INIT_TORCH is torch.nn.Linear's rule for each: uniform within 1/sqrt(in).  The bias is 0. */
ATTN_API attn_status attn_seq2seq_initialise(const attn_seq2seq *module, attn_init init, uint64_t seed,
                                             const attn_seq2seq_weights *weights, attn_error *error);

/* Like attn_layer_load and attn_layer_store; the names are those of the fields, "w", "state.weight", "memory.weight", "bias" and
 * "combine.weight". */
ATTN_API attn_status attn_seq2seq_load(const attn_seq2seq *module, const attn_archive *archive, const char *prefix,
                                       attn_seq2seq_weights *weights, attn_error *error);
ATTN_API attn_status attn_seq2seq_store(const attn_seq2seq *module, const attn_seq2seq_weights *weights, const char *prefix,
                                        attn_archive *archive, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
