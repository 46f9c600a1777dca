/* SPDX-License-Identifier: MIT
 * latent.h - types and functions shared by the files of multi-head latent attention. */
#ifndef ATTN_LAYERS_LATENT_H
#define ATTN_LAYERS_LATENT_H

#include "attn/latent.h"
#include "call.h"

enum { QUERY_DOWN, QUERY_UP, DOWN, UP, OUT, MATRICES, QUERY_NORM = MATRICES, NORM, TENSORS };

/* attn_latent with every default filled in. */
typedef struct latent {
    layer l; /* the attention between: heads_kv = heads_q, head_dim includes the rotated channels; no projections */
    int64_t model, out, heads, dim, dim_v, rank, rank_query, rotary;
    attn_rope rope;
    double epsilon;
    char *w[TENSORS];             /* weights, or gradients */
    weight_slot weights[TENSORS]; /* their slots, in the order of attn_latent_weights */
} latent;

/* ---- latent_rules.c ---- */
attn_status attn_latent_resolve(const attn_latent *given, latent *m, attn_error *error);
/* Fills in w and weights; what: "weights", "gradients", for messages. */
attn_status attn_latent_bind(latent *m, const char *what, const attn_latent_weights *weights, weights_role role, attn_error *error);
/* Rows and columns of matrix i, [out, in]; columns 0: a vector; rows 0: the layer lacks it. */
void attn_latent_shape(const latent *m, int i, int64_t *rows, int64_t *columns);

/* ---- latent.c ---- */

/* What backward needs: `call.saved`, then the latents before and after their norms (copies if there are no norms). */
typedef struct latents {
    char *query, *query_normed; /* [token][rank_query] */
    char *kv, *normed;          /* [token][rank + rotary], the last `rotary` rotated; [token][rank] */
    int64_t bytes;              /* including call.saved */
} latents;
attn_status attn_latents_layout(const latent *m, const extent *e, char *memory, saved *s, latents *at, attn_error *error);

typedef struct latent_call {
    latent m;
    call c;
    latents at;
} latent_call;
/* Like attn_call_begin. */
attn_status attn_latent_begin(latent_call *lc, const attn_latent *given, const attn_latent_weights *weights,
                              const attn_layer_tensors *args, attn_error *error);
/* Like attn_call_place. */
void attn_latent_place(latent_call *lc, int64_t saved_bytes, int forward);
/* Matrix i as a projection of one head, from its columns to its rows. */
projection attn_latent_matrix(const latent *m, int i);
/* Computes the latents and the queries from the inputs, rotated. */
attn_status attn_latent_project(const latent_call *lc, const int64_t *positions_q, const int64_t *positions_kv, attn_error *error);
/* Rotates the channels from `first` on of each head, which is `width` channels wide. */
attn_status attn_latent_rotate(const latent *m, char *data, int64_t heads, int64_t width, int64_t first, int64_t entries,
                               int64_t tokens, const int64_t *positions, int inverse, attn_error *error);

#endif
