/* SPDX-License-Identifier: MIT
 *
 * block.h - encoder and decoder blocks of the Transformer, forward and backward, on the public interface of libattn_layers.
 * With f = self-attention, attention to a memory (decoder only), and two matrices with a ReLU between them, in this order:
 *
 *      post-norm     x = norm(x + f(x))      (Vaswani et al. 2017, section 3.1)
 *      pre-norm      x = x + f(norm(x))      (Xiong et al. 2020)
 */
#ifndef BLOCK_H
#define BLOCK_H

#include <stdint.h>

#include "attn/layers.h"

#ifndef REAL
#define REAL float /* or double */
#endif
typedef REAL real;

typedef struct block {
    int64_t width, heads, hidden;
    int decoder;   /* 1: self-attention is causal, and a memory is attended to */
    int post_norm; /* 0: pre-norm */
} block;

/* The data of a call; all arrays are dense. */
typedef struct block_data {
    int64_t batch, len, len_memory;
    const int64_t *lengths_memory; /* [batch]: tokens of the memory without padding; NULL: all */
    const real *x;                 /* [batch][len][width] */
    const real *memory;            /* [batch][len_memory][width]; decoder only */
    real *y;                       /* like x */
    void *trace;                   /* block_trace_bytes; filled by forward, read by backward */

    const real *dy; /* backward */
    real *dx, *dmemory;
} block_data;

int64_t block_parameters(const block *b);
/* Matrices as in Glorot and Bengio 2010, gains 1, all else 0. */
attn_status block_initialise(const block *b, real *parameters, uint64_t seed, attn_error *error);
/* 0 if the sizes are inconsistent. */
int64_t block_trace_bytes(const block *b, const block_data *d);

attn_status block_forward(const block *b, const real *parameters, const block_data *d, attn_error *error);
/* Writes all gradients; dparameters is in the order of the parameters. */
attn_status block_backward(const block *b, const real *parameters, const block_data *d, real *dparameters, attn_error *error);

#endif
