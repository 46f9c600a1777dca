/* SPDX-License-Identifier: MIT
 * call.h - one call of a layer, forward or backward: what was given, checked, and the memory it takes. */
#ifndef ATTN_LAYERS_CALL_H
#define ATTN_LAYERS_CALL_H

#include "layer.h"

typedef struct call {
    const attn_layer_tensors *args;            /* `resolved`: len_kv filled in, `attention` NULL or the one below */
    const int64_t *positions_q, *positions_kv; /* NULL: 0, 1, 2 ... */
    const int64_t *lengths_q;                  /* of decoding; NULL: all tokens are real */
    void *weights_mean;
    extent extent;
    sequence in[3]; /* query, key, value; the same data where one is the other */
    sequence output;
    saved saved;
    attn_plan *plan;
    char *workspace, *taken; /* taken: `saved`, where the caller keeps none */
    char *memory;            /* where it was taken in one piece, what holds the workspace and the room of the products */
    char *positions;
    size_t workspace_size;
    /* From here on call_begin leaves it as it is, since all of it takes longer to clear than a product of one token. */
    layer l;
    attn_layer_tensors resolved;
    attn_options options; /* the caller's, if there are any; likewise */
    attn_tensors attention;
    const char *module; /* "layer", for messages */
    places places;      /* the tensors of the call, which share no elements with what is written */
} call;

/* A copy of the caller's struct, as large as ours, with options that are copied likewise into `options` (NULL: checked, and still
 * the caller's, who may have a shorter struct). */
attn_status call_read(attn_layer_tensors *ours, attn_options *options, const attn_layer_tensors *given, attn_error *error);
/* Checks tensors but for the inputs; c->l is there. */
attn_status call_check(call *c, int rotated, const attn_layer_tensors *args, attn_error *error);
/* Checks layer, weights and inputs, and measures the room of the products.  call_end follows, also if it fails. */
attn_status call_begin(call *c, const attn_layer *given, const attn_layer_weights *weights, const attn_layer_tensors *args,
                       attn_error *error);
/* Begins c->places with the inputs, the weights, and the caller's `saved`, which forward writes. */
void call_place(call *c, const weight_slot *weights, int count, int64_t saved_bytes, int forward);
/* Adds what forward writes, and checks; call_choose adds the tensors of the attention. */
attn_status call_place_outputs(call *c, const char *module, attn_error *error);
/* Takes c->l.room for products with matrices that are at most `widest` wide. */
attn_status call_scratch(call *c, int64_t widest, attn_error *error);
/* What only decoding has. */
attn_status call_reject_cached(const call *c, attn_error *error);
/* Takes memory for `saved`. */
attn_status call_save(call *c, attn_error *error);
/* Makes the plan of the attention; call_plan takes its workspace too. */
attn_status call_choose(call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error);
attn_status call_plan(call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error);
/* In one piece, after call_choose: its workspace, the room that call_begin measured, and *more of so many bytes.  Each piece of
 * memory takes as long as a small product. */
attn_status call_take(call *c, int64_t bytes, char **more, attn_error *error);
attn_status call_execute(call *c, const attn_tensors *core, attn_error *error);
void call_end(call *c);

/* ---- forward.c ---- */
attn_status project_input(const call *c, int i, const sequence *heads, attn_error *error);
attn_status project_output(const call *c, const sequence *heads, attn_error *error);
/* Executes the plan; then the extra key, the mean of the weights and the caller's lse. */
attn_status attend_with_extra(call *c, const attn_problem *problem, const attn_tensors *core, attn_error *error);

sequence dense_rows(char *data, int64_t batch, int64_t tokens, int64_t channels);
/* Rows to rows; add: to what is there. */
void move_rows(const layer *l, const sequence *from, const sequence *to, int add);

#endif
