/* SPDX-License-Identifier: MIT
 * layers_case.h - one drawn layer of any kind with weights, inputs and gradients.  fuzz_layers.c checks, layers_draw.c draws,
 * layers_reference.c has references, layers_weights.c tests the weights. */
#ifndef ATTN_FUZZ_LAYERS_CASE_H
#define ATTN_FUZZ_LAYERS_CASE_H

#include "attn/latent.h"
#include "attn/layers.h"
#include "attn/seq2seq.h"
#include "block.h"
#include "target.h"

enum { OF_HEADS, OF_LATENTS, OF_A_MEMORY, LAYER_KINDS };
enum { MAX_WEIGHTS = 10 };
/* The blocks; gradients are in the order of their inputs and weights. */
enum {
    Y_X,
    Y_KEY,
    Y_VALUE,
    Y_WEIGHTS,
    Y_INPUTS = Y_WEIGHTS + MAX_WEIGHTS,
    Y_Y = Y_INPUTS,
    Y_MEAN,
    Y_DY,
    Y_GRADIENTS,
    Y_BLOCKS = Y_GRADIENTS + Y_INPUTS
};

/* The layout of every weights struct. */
typedef struct layer_weights {
    size_t struct_size;
    attn_output slot[MAX_WEIGHTS];
} layer_weights;

typedef struct layers_case {
    draws *from;
    int kind;
    attn_dtype dtype;
    attn_layer layer;
    attn_latent latent;
    attn_seq2seq module;
    attn_problem attention;
    attn_rope rope;
    attn_call call;
    int weight_count;
    layer_weights weights, gradients;
    int64_t batch, len_q, len_kv, dim_q, dim_kv, dim_v, dim_out, lengths[4];
    int extra, masked; /* there is an extra key; there are lengths_kv */
    attn_options options;
    attn_tensors core;
    attn_layer_tensors tensors;
    size_t saved_bytes;
    unsigned char *saved;
    block blocks[Y_BLOCKS];
} layers_case;

/* ---- layers_draw.c ---- */
void layers_draw(layers_case *c);
/* Points the slots at all blocks, from entry e on. */
void layers_place(layers_case *c, int64_t e, int64_t batch);
/* Makes the call invalid and returns a description; NULL: nothing was changed. */
const char *layers_corrupt(layers_case *c, int backward);

/* ---- fuzz_layers.c ---- */
attn_status layers_forward(const layers_case *c, attn_error *error);
attn_status layers_backward(const layers_case *c, attn_error *error);

/* ---- layers_reference.c ---- */
/* Checks a multi-head layer against loops in double. */
void layers_by_loops(const layers_case *c);
/* f64: checks the gradients along a random direction against a difference of outputs. */
void layers_by_differences(layers_case *c);
/* f32: checks against the same layer in f64. */
void layers_by_f64(layers_case *c);
/* Checks decoding over a cache, token by token or in pieces. */
void layers_by_steps(layers_case *c);

/* ---- layers_weights.c ---- */
/* Checks weights stored and loaded, initialised from a seed, or grouped to fewer heads. */
void layers_by_weights(const layers_case *c);

#endif
