/* SPDX-License-Identifier: MIT
 * layer.h - what the files of libattn_layers share: a layer with its defaults filled in, its rows, its memory. */
#ifndef ATTN_LAYERS_LAYER_H
#define ATTN_LAYERS_LAYER_H

#include "../common/fail.h"
#include "attn/layers.h"

/* One of the four projections: what stands between `heads` of `dim` channels and `model` channels. */
typedef struct projection {
    const char *name;
    attn_projection at; /* strides filled in; weight and bias as given */
    int64_t heads, dim, model;
    int to_model; /* 1: the output projection, whose bias is on the model's side */
} projection;

enum { QUERY, KEY, VALUE, OUTPUT, PROJECTIONS };

/* attn_layer with every default filled in. */
typedef struct layer {
    attn_dtype dtype;
    int64_t size; /* bytes of a number */
    int64_t heads_q, heads_kv, head_dim, head_dim_v;
    int64_t inputs[3], dim_output; /* channels of query, key and value */
    int no_output;
    const attn_rope *rope;
    const attn_problem *attention;
    projection projections[PROJECTIONS]; /* without pointers until layer_bind */
} layer;

/* [batch, tokens, channels] anywhere in memory. */
typedef struct sequence {
    char *data;
    int64_t batch, tokens, channels, stride_batch, stride_token;
} sequence;

/* ---- rules.c: everything that can be wrong ---- */
attn_status layer_resolve(const attn_layer *given, layer *l, attn_error *error);
/* Fills in the pointers and strides.  needed: the weights must be there. */
attn_status layer_bind(layer *l, const attn_layer_weights *weights, int needed, attn_error *error);
attn_status layer_rows(const attn_sequence *given, const char *name, int64_t batch, int64_t tokens, int64_t channels, int needed,
                       sequence *r, attn_error *error);
/* *bytes = size * a * b * c, or an error. */
attn_status layer_bytes(int64_t size, int64_t a, int64_t b, int64_t c, int64_t *bytes, attn_error *error);

/* ---- project.c: the products ---- */

/* heads_side is dense, [batch*tokens][heads*dim]. */
void project_to_heads(const layer *l, const projection *p, const sequence *x, char *heads_side);
/* add: to what is there. */
void project_to_model(const layer *l, const projection *p, const char *heads_side, const sequence *y, int add);
/* p->at.weight = heads_side^T x, summed over the rows. */
void project_gradient(const layer *l, const projection *p, const char *heads_side, const sequence *x);

void bias_add(const layer *l, const void *bias, const sequence *y);
/* bias[c] = sum over rows, in their order. */
void bias_gradient(const layer *l, void *bias, const sequence *dy);

/* ---- middle.c: the attention between the projections ---- */

/* What backward needs of forward, in one piece of memory: dense [batch, token, head, channel], and lse [batch, head, token]. */
typedef struct saved {
    char *q, *k, *v, *a, *lse;
    int64_t bytes;
} saved;
attn_status saved_layout(const layer *l, int64_t batch, int64_t len_q, int64_t len_kv, char *memory, saved *s, attn_error *error);

/* The problem of attn_execute, and its arguments as far as they lie in `s`. */
attn_status middle_problem(const layer *l, const attn_layer_args *args, attn_op op, const saved *s, attn_problem *problem,
                           attn_args *core, attn_error *error);
/* Rotates projected queries or keys in place. */
attn_status middle_rotate(const layer *l, char *data, int64_t heads, int64_t batch, int64_t tokens, const int64_t *positions,
                          int inverse, attn_error *error);

/* Memory for a call: all of it or an error. */
attn_status memory_take(const attn_options *options, int64_t bytes, char **memory, attn_error *error);
void memory_give(const attn_options *options, char *memory);

#endif
