/* SPDX-License-Identifier: MIT
 * call.h - one call of a layer, forward or backward: what was given, checked, and the memory it takes. */
#ifndef ATTN_LAYERS_CALL_H
#define ATTN_LAYERS_CALL_H

#include "layer.h"

typedef struct call {
    layer l;
    const attn_layer_args *args; /* len_kv and, of packed sequences, the positions filled in */
    attn_layer_args resolved;
    extent extent;
    sequence in[3]; /* query, key, value; the same data where one is the other */
    sequence output;
    saved saved;
    attn_plan *plan;
    char *workspace, *taken; /* taken: `saved`, where the caller keeps none */
    char *positions;
    size_t workspace_size;
} call;

/* Checks args but for the inputs; c->l is there. */
attn_status call_check(call *c, int rotated, const attn_layer_args *args, attn_error *error);
/* Checks layer, weights and inputs.  call_end follows, also if it fails. */
attn_status call_begin(call *c, const attn_layer *given, const attn_layer_weights *weights, const attn_layer_args *args,
                       attn_error *error);
/* What only decoding takes. */
attn_status call_refuse_cached(const call *c, attn_error *error);
/* Takes memory for `saved`. */
attn_status call_save(call *c, attn_error *error);
attn_status call_plan(call *c, const attn_problem *problem, attn_error *error);
attn_status call_execute(call *c, const attn_args *core, attn_error *error);
void call_end(call *c);

/* ---- forward.c ---- */
void project_input(const call *c, int i, const sequence *heads);
void project_output(const call *c, const sequence *heads);
/* Executes the plan; then the extra key, the mean of the weights and the caller's lse. */
attn_status attend_with_extra(call *c, const attn_problem *problem, const attn_args *core, attn_error *error);

sequence dense_rows(char *data, int64_t batch, int64_t tokens, int64_t channels);
/* Rows to rows; add: to what is there. */
void move_rows(const layer *l, const sequence *from, const sequence *to, int add);

#endif
