/* SPDX-License-Identifier: MIT
 *
 * layer_case.h - a case of a layer with weights in libattn's terms: its translation (layer_suites.c), the expected result
 * (layer_reference.c), and the library's result (layer_run.c).
 */
#ifndef ATTN_TESTING_CONFORMANCE_LAYER_CASE_H
#define ATTN_TESTING_CONFORMANCE_LAYER_CASE_H

#include <cjson/cJSON.h>

#include "attn/layers.h"
#include "evaluate.h"

enum { QUERY, KEY, VALUE, OUTPUT, PROJECTIONS };
enum { MAX_NAMES = 64, GRADIENTS = 10 };

/* A matrix and a bias anywhere in two tensors: weight[at + h*stride[0] + c*stride[1] + m*stride[2]], bias[bias_at + h*dim + c]. */
typedef struct case_projection {
    view weight, bias;
    int64_t at, stride[3], bias_at;
} case_projection;

/* An expected gradient, in the order of its tensor. */
typedef struct case_gradient {
    const char *name; /* "out.grad_wq" */
    view expected;
    enum { OF_QUERY, OF_KEY, OF_WEIGHT, OF_BIAS } role;
    int projection; /* OF_WEIGHT, OF_BIAS */
} case_gradient;

typedef struct layer_case {
    evaluation *result;
    view_pool pool;
    const cJSON *json, *params;
    const attn_archive *tensors;
    int tensor_used[MAX_NAMES], param_used[MAX_NAMES];
    double rtol, atol;
    attn_options options;

    attn_layer layer;
    int64_t batch, len_q, len_kv; /* len_kv: new tokens of the key input */
    view input[3];                /* [batch, token, channel]; absent: the previous one */
    case_projection projection[PROJECTIONS];
    const char *prefix; /* not NULL: attn_layer_load loads the weights with it; these projections are the same */
    view extra[2];      /* a key and a value that every query sees */
    int zero_key;       /* 1: followed by a key and a value of 0 */
    int rotated;
    attn_rope rope;
    int64_t *positions; /* [batch][len_q], or NULL */
    int causal;         /* 1: causal; queries follow the past */
    int has_scale;
    double scale;
    int64_t *lengths_kv; /* [batch], or NULL */
    view keep, bias;     /* [batch, heads_q, len_q, past + len_kv], broadcast by strides of 0 */
    int packed;          /* inputs are [1, tokens, channel]; sequence b starts at begin[b] */
    int64_t *begin;
    int decode, only_cached;
    view past[2];            /* [batch, head, space, channel] */
    int64_t past_len, space; /* space: tokens that the cache has memory for */

    view output, weights, weights_mean; /* expected: [batch or 1, token, channel], [batch, head, query, key], [batch, query, key] */
    view present[2];                    /* [batch, head, space or all tokens, channel] */
    view projected[3];                  /* [batch, token, head * channel]: outputs of the projections */
    view grad_output;
    case_gradient gradient[GRADIENTS];
    int gradients;
} layer_case;

/* Reads the case; the result has a status other than passed if it cannot be run. */
void layer_translate(layer_case *c, const char *suite, const char *op);

/* ---- layer_reference.c ---- */

/* Results by definition, in double, and their bounds for a rounding unit of 1: times the actual unit, the error bound. */
typedef struct layer_expectation {
    int64_t len_q, keys; /* of the longest sequence; keys: past, new, extra and zero */
    double *y, *y_bound; /* [batch][len_q][dim_output] */
    double *P, *P_bound; /* [batch][heads_q][len_q][keys] */
    double *Q, *Q_bound; /* [batch][heads_q][len_q][head_dim] */
    double *K, *V;       /* [batch][heads_kv][keys][head_dim], and so on */
    double *K_bound, *V_bound;
} layer_expectation;
void layer_expect(layer_case *c, layer_expectation *e);

#endif
