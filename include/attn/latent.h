/* SPDX-License-Identifier: MIT
 *
 * latent.h - multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2", section 2.1): the keys and values of all heads come from
 * one short vector per token, which is all that a cache has to keep.  Part of libattn_layers; conventions of attn.h hold.
 */
#ifndef ATTN_LATENT_H
#define ATTN_LATENT_H

#include "attn/layers.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * One layer, without its weights.  A head has head_dim channels for content and dim_rotary for position; all heads share one
 * rotated key.  `attention` as in attn_layer; the scale is 1/sqrt(head_dim + dim_rotary) unless it is given there.
 */
typedef struct attn_latent {
    size_t struct_size; /* sizeof(attn_latent) */
    attn_dtype dtype;   /* of inputs, weights and outputs: ATTN_F32 (default) or ATTN_F64 */
    int64_t dim_model;
    int64_t dim_output; /* 0: dim_model */
    int64_t heads;
    int64_t head_dim;      /* channels of a query and of a key without the rotated ones; 0: dim_model / heads, an integer */
    int64_t head_dim_v;    /* 0: head_dim */
    int64_t rank;          /* channels of the latent; 0: head_dim */
    int64_t rank_query;    /* channels of a latent for queries; 0: none */
    int64_t dim_rotary;    /* even; 0: no rotation */
    const attn_rope *rope; /* of these dim_rotary channels; NULL: interleaved pairs, base 10000 */
    double norm_epsilon;   /* of the norms in attn_latent_weights; 0: 1e-6 */
    const attn_problem *attention;
    int64_t reserved[4]; /* must be 0 */
} attn_latent;

/*
 * Weights as [out, in], one slot per tensor, dense, of the layer's dtype; the names beside them are those in DeepSeek's model
 * files.  Weights are read; as gradients, those present are written.
 */
typedef struct attn_latent_weights {
    size_t struct_size;     /* sizeof(attn_latent_weights) */
    attn_output query_down; /* q_a_proj [1, 1, rank_query, dim_model]; absent without a latent for queries */
    attn_output query;      /* q_b_proj, or q_proj: [1, heads, head_dim + dim_rotary, rank_query or dim_model] */
    attn_output down;       /* kv_a_proj_with_mqa [1, 1, rank + dim_rotary, dim_model]: the latent, then the rotated key */
    attn_output up;         /* kv_b_proj [1, heads, head_dim + head_dim_v, rank]: for each head its key, then its value */
    attn_output output;     /* o_proj [1, dim_output, heads, head_dim_v] */
    /* If present, the latents are divided by the root of their mean square and multiplied by these (Zhang and Sennrich 2019,
     * "RMSNorm"). */
    attn_output query_norm; /* q_a_layernorm [1, 1, 1, rank_query] */
    attn_output norm;       /* kv_a_layernorm [1, 1, 1, rank] */
} attn_latent_weights;

/*
 * The layer.  With x the query input and z the key input (or x), for every head h,
 *
 *      c_j   = norm(z_j down^T)[:rank]                         r_j = rope(z_j down^T)[rank:]
 *      k_jh  = (up_h^T c_j)[:head_dim], then r_j               v_jh = (up_h^T c_j)[head_dim:]
 *      q_ih  = query applied to x_i, or to norm(x_i query_down^T); its last dim_rotary channels rotated
 *      y     = output(attention(q, k, v))
 *
 * tensors as in attn_layer_forward: value is not used and must be absent; packed sequences as there.  Memory: keys and values of
 * all heads exist during the call (attn_latent_decode avoids this).  Returns what attn_layer_forward returns.
 */
ATTN_API attn_status attn_latent_forward(const attn_latent *latent, const attn_latent_weights *weights,
                                         const attn_layer_tensors *tensors, attn_error *error);

/* All gradients in one call, like attn_layer_backward. */
ATTN_API attn_status attn_latent_backward(const attn_latent *latent, const attn_latent_weights *weights,
                                          const attn_layer_tensors *tensors, const attn_latent_weights *gradients,
                                          attn_error *error);

/*
 * attn_layer_decode over a cache of latents: heads_kv 1, dim_qk = rank + dim_rotary (c_j, then r_j), dim_v = rank; v and v_scale
 * are NULL, since the values are the first channels of the keys.  Keys and values of the heads are never formed: with up_h^T =
 * (K_h, V_h),
 *
 *      q.k_jh = (K_h^T q).c_j + q_rotated.r_j        sum_j w_j v_jh = V_h sum_j w_j c_j
 *
 * so this is attention with one key head, with the same result up to rounding (ibid., appendix C).
 */
ATTN_API attn_status attn_latent_decode(const attn_latent *latent, const attn_latent_weights *weights, const attn_cache *cache,
                                        const attn_layer_tensors *tensors, attn_error *error);

/* cache_per_token is (rank + dim_rotary) numbers, where multi-head attention keeps 2 heads head_dim.  weights determines whether
 * there are norms; NULL: none. */
ATTN_API attn_status attn_latent_count(const attn_latent *latent, int64_t batch, int64_t len_q, int64_t len_kv,
                                       const attn_latent_weights *weights, attn_layer_counts *counts, attn_error *error);

/* Like attn_layer_initialise, each matrix by its own rows and columns; one head has head_dim + dim_rotary channels for a query,
 * head_dim for a key and head_dim_v for a value.  ATTN_INIT_TORCH is torch.nn.Linear's rule for each: uniform within 1/sqrt(in).
 * Norms are 1. */
ATTN_API attn_status attn_latent_initialise(const attn_latent *latent, attn_init init, uint64_t seed,
                                            const attn_latent_weights *weights, attn_error *error);

/* Like attn_layer_load and attn_layer_store, with the names above followed by ".weight". */
ATTN_API attn_status attn_latent_load(const attn_latent *latent, const attn_archive *archive, const char *prefix,
                                      attn_latent_weights *weights, attn_error *error);
ATTN_API attn_status attn_latent_store(const attn_latent *latent, const attn_latent_weights *weights, const char *prefix,
                                       attn_archive *archive, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
