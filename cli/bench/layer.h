/* SPDX-License-Identifier: MIT
 *
 * layer.h - what a layer of either form needs: multi-head and grouped (attn/layers.h), latent (attn/latent.h). */
#ifndef ATTN_CLI_BENCH_LAYER_H
#define ATTN_CLI_BENCH_LAYER_H

#include "attn/latent.h"
#include "attn/layers.h"
#include "candidate.h"

typedef struct layer_work {
    operand o;
    data *data;             /* of the candidate */
    attn_problem attention; /* options of the inner attention */
    attn_rope rope;
    attn_layer layer;
    attn_layer_weights weights, gradients;
    attn_latent latent;
    attn_latent_weights latent_weights, latent_gradients;
    attn_layer_counts counts; /* of forward over sq tokens */
    attn_layer_tensors args;
    attn_options options;
    attn_cache cache;
    int64_t *lengths;
    size_t taken, most; /* bytes that calls allocate: now, and at most */
    random_state random;
} layer_work;

/* Normal numbers of the layer's type, in memory of the data. */
void *layer_draw(layer_work *w, int64_t count);

/* ---- layer_forms.c ---- */
typedef struct layer_functions {
    attn_status (*make)(layer_work *w, attn_error *error); /* sizes, weights, gradients and counts */
    void (*size_cache)(const layer_work *w, attn_cache *cache);
    /* Of a token, its share of 2 (d + dv) a pair; and the products of one call without the attention, forward. */
    attn_shape (*attends)(const layer_work *w); /* of the inner attention over the cache, or of the layer */
    double (*projections)(const layer_work *w);
    attn_status (*forward)(const layer_work *w, attn_error *error);
    attn_status (*backward)(const layer_work *w, attn_error *error);
    attn_status (*decode)(const layer_work *w, attn_error *error);
} layer_functions;

const layer_functions *layer_functions_of(layer_form form);

#endif
