/* SPDX-License-Identifier: MIT
 * layer.h - shared by the files of libattn_layers: a layer with its defaults filled in, its rows, its memory. */
#ifndef ATTN_LAYERS_LAYER_H
#define ATTN_LAYERS_LAYER_H

#include "../common/decoding.h"
#include "../common/slots.h"
#include "attn/layers.h"
#include "weights.h"

/* A matrix and its bias in memory: channel c of head h and channel m of the model are at h*stride_head + c*stride_channel +
 * m*stride_model, and one of the last two strides is 1. */
typedef struct projection_memory {
    void *weight, *bias; /* NULL: absent */
    int64_t stride_head, stride_channel, stride_model;
} projection_memory;

/* One of the four projections, between `heads` heads of `dim` channels and `model` channels. */
typedef struct projection {
    const char *name;
    projection_memory at;
    int64_t heads, dim, model;
    int to_model; /* 1: the output projection, whose bias is on the model's side */
    int none;     /* 1: no projection, rows pass unchanged */
} projection;

enum {
    QUERY,
    KEY,
    VALUE,
    OUTPUT,
    PROJECTIONS,
    EXTRA_KEY = 2 * PROJECTIONS,
    EXTRA_VALUE,
    LAYER_WEIGHTS
}; /* the biases follow the projections */

/* What all products of a call use: the caller's options, resolved once, and scratch that suffices for any of them. */
typedef struct product_scratch {
    attn_options options;
    char *memory;
    int64_t bytes;
} product_scratch;

/* attn_layer with every default filled in. */
typedef struct layer {
    attn_dtype dtype;
    int64_t size;                                                /* bytes of an element */
    int64_t heads_q, heads_kv, head_dim, head_dim_k, head_dim_v; /* head_dim_k: of keys; head_dim unless the score is general */
    int64_t inputs[3], dim_output;                               /* channels of query, key and value */
    int no_output;
    const attn_rope *rope;
    const attn_problem *attention;       /* NULL, or `options` */
    projection projections[PROJECTIONS]; /* without pointers until attn_layer_bind */
    char *extra_key, *extra_value;       /* likewise */
    product_scratch scratch;             /* unset until attn_scratch_measure */
    weight_slot weights[LAYER_WEIGHTS];  /* in the order of attn_layer_weights; unset until attn_layer_bind */
    attn_problem options;                /* unset if attention is NULL */
} layer;

/* [batch, tokens, channels] anywhere in memory.  Without tokens there are no entries either: walks over them end at once. */
typedef struct sequence {
    char *data;
    int64_t batch, tokens, channels, stride_batch, stride_token;
} sequence;

/* ---- rules.c: all checks ---- */
attn_status attn_layer_resolve(const attn_layer *given, layer *l, attn_error *error);
/* Fills in the pointers and strides; what: "weights", "gradients", for messages. */
attn_status attn_layer_bind(layer *l, const char *what, const attn_layer_weights *weights, weights_role role, attn_error *error);
attn_status attn_layer_rows(attn_dtype dtype, const attn_input *given, const char *name, int64_t batch, int64_t tokens,
                            int64_t channels, int needed, sequence *r, attn_error *error);
attn_status attn_layer_rows_out(attn_dtype dtype, const attn_output *given, const char *name, int64_t batch, int64_t tokens,
                                int64_t channels, int needed, sequence *r, attn_error *error);
/* *data: a dense array of this type, or NULL if the slot is absent. */
attn_status attn_layer_dense(attn_dtype dtype, const attn_input *slot, const char *name, int elements, const void **data,
                             attn_error *error);
/* Adds rows to the tensors of a call. */
void attn_places_add_rows(places *p, const char *name, const sequence *r, int output);
/* *bytes = size * a * b * c, or an error. */
attn_status attn_layer_bytes(int64_t size, int64_t a, int64_t b, int64_t c, int64_t *bytes, attn_error *error);

/* ---- project.c: the products; both sides have the same entries and tokens, and the heads' side heads * dim channels ---- */

/* Measures the scratch of products of matrices with no side longer than max(rows, widest), and resolves the options. */
attn_status attn_scratch_measure(layer *l, const attn_options *options, int64_t rows, int64_t widest, attn_error *error);
/* Measures and acquires the scratch; attn_scratch_release releases it. */
attn_status attn_scratch_acquire(layer *l, const attn_options *options, int64_t rows, int64_t widest, attn_error *error);
void attn_scratch_release(const layer *l);

attn_status attn_project_to_heads(const layer *l, const projection *p, const sequence *x, const sequence *heads_side,
                                  attn_error *error);
/* add: adds to y. */
attn_status attn_project_to_model(const layer *l, const projection *p, const sequence *heads_side, const sequence *y, int add,
                                  attn_error *error);
/* p->at.weight = heads_side^T x, summed over the rows. */
attn_status attn_project_gradient(const layer *l, const projection *p, const sequence *heads_side, const sequence *x,
                                  attn_error *error);

void attn_bias_add(const layer *l, const void *bias, const sequence *y);
/* bias[c] = sum over rows, in their order. */
void attn_bias_gradient(const layer *l, void *bias, const sequence *dy);

/* ---- middle.c: the attention between the projections ---- */

/* What backward needs of forward, in one piece of memory: dense [batch, token, head, channel], and lse [batch, head, token]. */
typedef struct saved {
    char *q, *k, *v, *a, *lse;
    int64_t bytes;
} saved;
attn_status attn_saved_layout(const layer *l, int64_t batch, int64_t len_q, int64_t len_kv, char *memory, saved *s,
                              attn_error *error);

/* The layout of a call's tokens.  Packed: one entry, in which sequence b starts at begin_q[b]; else sequence b is entry b. */
typedef struct extent {
    int64_t batch, len_q, len_kv;         /* of the problem */
    int64_t entries, tokens_q, tokens_kv; /* of the memory */
    int packed;
    const attn_input *begin_q, *begin_kv; /* [batch + 1] */
} extent;
/* From the checked arguments; len_kv must be filled in. */
attn_status attn_extent_of(const layer *l, const attn_layer_tensors *args, extent *e, attn_error *error);

/* The problem of the attention, and its tensors as far as they are in `s`.  Drops the caller's options for the other pass;
 * core->call points to `call`. */
attn_status attn_middle_problem(const layer *l, const attn_layer_tensors *args, const extent *e, attn_op op, const saved *s,
                                attn_problem *problem, attn_tensors *core, attn_call *call, attn_error *error);
/* Memory of [entry, token, head, channel] as a slot of the core; NULL: no elements. */
attn_input attn_input_by_token(const layer *l, const void *data, int64_t tokens, int64_t heads, int64_t dim);
attn_output attn_output_by_token(const layer *l, void *data, int64_t tokens, int64_t heads, int64_t dim);
/* The same for lse, [entry, head, token]. */
attn_input attn_input_by_head(const layer *l, const extent *e, const void *data);
/* Clears all slots that forward only writes, except o. */
void attn_clear_outputs(attn_tensors *core);
/* Rotates projected queries or keys in place. */
attn_status attn_middle_rotate(const layer *l, char *data, int64_t heads, int64_t batch, int64_t tokens, const int64_t *positions,
                               int inverse, attn_error *error);

/* ---- extra.c: a key that belongs to no token, merged into the result of the others ---- */

/* For each row of lse: the factor of the other keys' weights, the weight of the extra key, the lse over all keys. */
typedef struct extra {
    double *factor, *weight, *lse;
    char *memory;
} extra;
/* The index of a row in these arrays; -1 if a packed sequence has fewer rows. */
int64_t attn_extra_row(const layer *l, const extent *e, int64_t b, int64_t h, int64_t i);
attn_status attn_extra_check(const layer *l, const attn_problem *problem, const attn_tensors *core, attn_error *error);
/* From the lse of the other keys.  Acquires memory if the layer has an extra key; else x is all NULL. */
attn_status attn_extra_weights(const layer *l, const attn_layer_tensors *args, const extent *e, const attn_problem *problem,
                               const attn_tensors *core, const saved *s, extra *x, attn_error *error);
/* Merges the extra key into a, lse, and the outputs of core: weights and statistics. */
void attn_extra_merge(const layer *l, const extent *e, const attn_tensors *core, const saved *s, const extra *x);
/* Adds to grad_q and grad_scale of core, and writes the gradients of the extra key and value (NULL: not requested). */
attn_status attn_extra_backward(const layer *l, const attn_layer_tensors *args, const extent *e, const attn_problem *problem,
                                const attn_tensors *core, const saved *s, char *grad_key, char *grad_value, attn_error *error);

/* ---- numbers of a layer's type ---- */

static inline double number_get(const layer *l, const void *from, int64_t at)
{
    return l->dtype == ATTN_F64 ? ((const double *)from)[at] : (double)((const float *)from)[at];
}

static inline void number_put(const layer *l, void *to, int64_t at, double x)
{
    if (l->dtype == ATTN_F64) ((double *)to)[at] = x;
    else ((float *)to)[at] = (float)x;
}

/* ---- memory.c ---- */

/* Memory for a call: all of it or an error. */
attn_status attn_memory_acquire(const attn_options *options, int64_t bytes, char **memory, attn_error *error);
void attn_memory_release(const attn_options *options, char *memory);

/* Element i of an array of i32 or i64. */
int64_t attn_layer_index_at(const attn_input *array, int64_t i);

#endif
