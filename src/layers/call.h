/* SPDX-License-Identifier: MIT
 * call.h - one call of a layer, forward or backward: its checked arguments and its memory. */
#ifndef ATTN_LAYERS_CALL_H
#define ATTN_LAYERS_CALL_H

#include "layer.h"

typedef struct call {
    const attn_layer_tensors *args;            /* points to `resolved`: len_kv filled in, `attention` NULL or the one below */
    const int64_t *positions_q, *positions_kv; /* NULL: 0, 1, 2 ... */
    const int64_t *lengths_q;                  /* only for decoding; NULL: no padding */
    void *weights_mean;
    extent extent;
    sequence in[3]; /* query, key, value; the same data if inputs are shared */
    sequence output;
    saved saved;
    attn_plan *plan;
    char *workspace, *taken; /* taken: `saved`, if the caller passes none */
    char *memory;            /* if acquired in one piece: holds the workspace and the scratch of the products */
    char *positions;
    size_t workspace_size;
    /* attn_call_begin does not clear what follows: that would take longer than a product of one token. */
    layer l;
    attn_layer_tensors resolved;
    attn_options options; /* a copy of the caller's, if any */
    attn_tensors attention;
    const char *module; /* "layer", for messages */
    places places;      /* the tensors of the call; outputs overlap none of them */
} call;

/* Copies the caller's struct, extended to our size, and its options likewise into `options` (NULL: the options are only checked;
 * `copy` still points to the caller's, whose struct may be shorter). */
attn_status attn_call_read(attn_layer_tensors *copy, attn_options *options, const attn_layer_tensors *given, attn_error *error);
/* Checks batch and lengths, each by itself: products of two of them fit. */
attn_status attn_call_sizes(const attn_layer_tensors *args, attn_error *error);
/* Checks all tensors but the inputs; c->l must be filled in. */
attn_status attn_call_check(call *c, int rotated, const attn_layer_tensors *args, attn_error *error);
/* Checks layer, weights and inputs, and measures the scratch of the products.  Call attn_call_end afterwards, even on failure. */
attn_status attn_call_begin(call *c, const attn_layer *given, const attn_layer_weights *weights, const attn_layer_tensors *args,
                            attn_error *error);
/* Starts c->places with the inputs, the weights, and the caller's `saved`, which only forward writes. */
void attn_call_place(call *c, const weight_slot *weights, int count, int64_t saved_bytes, int forward);
/* Adds the outputs of forward, then checks for overlaps; attn_call_choose adds the tensors of the attention. */
attn_status attn_call_place_outputs(call *c, const char *module, attn_error *error);
/* Acquires c->l.scratch for products with matrices at most `widest` wide. */
attn_status attn_call_scratch(call *c, int64_t widest, attn_error *error);
/* Rejects the tensors that are only for decoding. */
attn_status attn_call_reject_cached(const call *c, attn_error *error);
/* Acquires memory for `saved`. */
attn_status attn_call_save(call *c, attn_error *error);
/* Plans the attention; attn_call_plan also acquires its workspace. */
attn_status attn_call_choose(call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error);
attn_status attn_call_plan(call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error);
/* After attn_call_choose, acquires in one piece: its workspace, the scratch that attn_call_begin measured, and *more of `bytes`
 * bytes.  Each allocation takes as long as a small product. */
attn_status attn_call_take(call *c, int64_t bytes, char **more, attn_error *error);
attn_status attn_call_execute(call *c, const attn_tensors *core, attn_error *error);
void attn_call_end(call *c);

/* ---- forward.c ---- */
attn_status attn_project_input(const call *c, int i, const sequence *heads, attn_error *error);
attn_status attn_project_output(const call *c, const sequence *heads, attn_error *error);
/* Executes the plan; then the extra key, the mean of the weights and the caller's lse. */
attn_status attn_attend_with_extra(call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error);

sequence attn_layer_dense_rows(char *data, int64_t batch, int64_t tokens, int64_t channels);
/* Copies rows; add: adds them to the destination. */
void attn_move_rows(const layer *l, const sequence *from, const sequence *to, int add);

#endif
