/* SPDX-License-Identifier: MIT
 * layers_case.h - one drawn layer of any kind with weights, inputs and gradients.  fuzz_layers.c judges, layers_draw.c draws,
 * layers_reference.c computes by loops and by differences. */
#ifndef ATTN_FUZZ_LAYERS_CASE_H
#define ATTN_FUZZ_LAYERS_CASE_H

#include "attn/latent.h"
#include "attn/layers.h"
#include "attn/seq2seq.h"
#include "block.h"
#include "target.h"

enum { OF_HEADS, OF_LATENTS, OF_A_MEMORY, LAYER_KINDS };
enum { WEIGHTS_MOST = 10 };
/* The blocks; gradients follow what they are of by the same order. */
enum {
    Y_X,
    Y_KEY,
    Y_VALUE,
    Y_WEIGHTS,
    Y_INPUTS = Y_WEIGHTS + WEIGHTS_MOST,
    Y_Y = Y_INPUTS,
    Y_MEAN,
    Y_DY,
    Y_GRADIENTS,
    Y_BLOCKS = Y_GRADIENTS + Y_INPUTS
};

/* All weights structs are this. */
typedef struct layer_weights {
    size_t struct_size;
    attn_output slot[WEIGHTS_MOST];
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
    int extra, masked; /* there is an extra key; lengths_kv are there */
    attn_options options;
    attn_tensors core;
    attn_layer_tensors tensors;
    size_t saved_bytes;
    unsigned char *saved;
    block of[Y_BLOCKS];
} layers_case;

/* ---- layers_draw.c ---- */
void layers_draw(layers_case *c);
/* Slots of all blocks, from entry e on. */
void layers_place(layers_case *c, int64_t e, int64_t batch);
/* Makes something wrong that must be rejected, and says what; NULL: nothing found to spoil. */
const char *layers_spoil(layers_case *c, int backward);

/* ---- fuzz_layers.c ---- */
attn_status layers_forward(const layers_case *c, attn_error *error);
attn_status layers_backward(const layers_case *c, attn_error *error);

/* ---- layers_reference.c ---- */
/* A layer of heads by loops in double. */
void layers_by_loops(const layers_case *c);
/* f64: the gradients along a random direction, against a difference of the outputs. */
void layers_by_differences(layers_case *c);
/* f32: what the same layer in f64 gives. */
void layers_by_f64(layers_case *c);
/* Token by token, or in pieces, over a cache. */
void layers_by_steps(layers_case *c);

/* ---- layers_weights.c ---- */
/* Weights stored and loaded, started from a seed, or of fewer heads. */
void layers_by_weights(const layers_case *c);

#endif
