/* SPDX-License-Identifier: MIT
 *
 * layers.h - attention layers with weights: multi-head, grouped and single-head attention, self or cross, forward and backward.
 * The library is libattn_layers.  Conventions of attn.h hold: statuses, errors, ownership, threads.
 *
 *      attn_layer layer = {.struct_size = sizeof layer, .dim_model = 384, .heads_q = 12};
 *      attn_layer_weights weights = {.struct_size = sizeof weights, .query = attn_saved(wq), .query_bias = attn_saved(bq), ...};
 *      attn_layer_tensors t = {.struct_size = sizeof t, .batch = 1, .len_q = 14, .query = attn_in(x), .output = attn_out(y)};
 *      attn_layer_forward(&layer, &weights, &t, &error);
 */
#ifndef ATTN_LAYERS_H
#define ATTN_LAYERS_H

#include "attn/attn.h"
#include "attn/cache.h"
#include "attn/io.h"
#include "attn/position.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a layer is ------------------------------------------------------------------------------------------- */

/*
 * One layer, without its weights.  Self-attention with one head is heads_q = 1; grouped-query attention is heads_kv < heads_q.
 *
 * `attention` has the options of the inner attention, in the groups score, mask, dropout, outputs, bias_table and relative; op,
 * shape and paging are set by the layer and must be 0 there.  NULL: none.
 *
 * Packed: if attn_layer_tensors.attention has cu_seqlens_q and cu_seqlens_kv, sequences of different lengths are concatenated
 * without padding: query, key, value, output and their gradients are [1, 1, total tokens, channels] (the stride of batch is not
 * used), attn_layer_tensors.batch counts the sequences, and len_q and len_kv are the longest of them.
 */
typedef struct attn_layer {
    size_t struct_size; /* sizeof(attn_layer) */
    attn_dtype dtype;   /* of inputs, weights and outputs: ATTN_F32 (default) or ATTN_F64 */
    int64_t dim_model;  /* channels of the query input, and of the output unless dim_output is set */
    int64_t dim_key;    /* channels of the key input; 0: dim_model */
    int64_t dim_value;  /* channels of the value input; 0: dim_key */
    int64_t dim_output; /* 0: dim_model */
    int64_t heads_q;
    int64_t heads_kv;   /* 0: heads_q */
    int64_t head_dim;   /* channels of a query and of a key; 0: dim_model / heads_q, an integer */
    int64_t head_dim_v; /* channels of a value; 0: head_dim */
    /* 1: no projection of queries (keys, values): the input has the heads side by side, heads_q * head_dim channels (heads_kv *
     * head_dim, heads_kv * head_dim_v); a bias is still added. */
    int no_query, no_key, no_value;
    int no_output;         /* 1: no output projection: the output is the heads side by side, heads_q * head_dim_v */
    const attn_rope *rope; /* NULL, or the rotation of projected queries and keys */
    const attn_problem *attention;
    int64_t reserved[4]; /* must be 0 */
} attn_layer;

/*
 * The weights, one slot per tensor, of the layer's dtype.  They are read (attn_saved makes a slot of const memory); as gradients
 * (attn_layer_backward), those present are written, with their own strides.  Channel c of head h is
 *
 *      sum_m x[m] query[0,h,c,m] + query_bias[0,h,c,0]             keys and values likewise
 *      y[m] = sum_h,c a[h,c] output[0,m,h,c] + output_bias[0,0,0,m]
 *
 * The dense layout is PyTorch's matrices [out, in].  The rows of one fused [3*D, D] matrix are three slots into it; x @ W with a
 * fused [D, 3*D] matrix has the strides {0, dim, 1, 3*D}; a [head, model, channel] array {0, model*channel, 1, channel}.  Either
 * the stride of model or that of channel is 1.
 *
 * The extra key follows the last key of each entry: a learned key that every query sees, regardless of masks, and its value (bias_k
 * and bias_v of torch.nn.MultiheadAttention).  It has no position: it is not rotated, not dropped, and no bias or ALiBi is added to
 * its score.  With it attn_layer_tensors.weights_mean has one more column, the last; attn_tensors.weights has not, and the weights
 * of the other keys sum to 1 minus that of the extra key.  lse, row_max, entropy and effective_keys include it (the last two not
 * together with a sink); other outputs of the attention are not available with it.  (torch's add_zero_attn needs none of this: a
 * key and a value of 0 are a sink of 0, attn_tensors.sink.)
 */
typedef struct attn_layer_weights {
    size_t struct_size;      /* sizeof(attn_layer_weights) */
    attn_output query;       /* [1, heads_q, head_dim, dim_model] */
    attn_output key;         /* [1, heads_kv, head_dim (or dim_k of a general score), dim_key] */
    attn_output value;       /* [1, heads_kv, head_dim_v, dim_value] */
    attn_output output;      /* [1, dim_output, heads_q, head_dim_v] */
    attn_output query_bias;  /* [1, heads_q, head_dim, 1], dense; absent: none.  Likewise the other biases */
    attn_output key_bias;    /* [1, heads_kv, head_dim, 1], dense */
    attn_output value_bias;  /* [1, heads_kv, head_dim_v, 1], dense */
    attn_output output_bias; /* [1, 1, 1, dim_output], dense */
    attn_output extra_key;   /* [1, heads_kv, head_dim, 1], dense; together with its value */
    attn_output extra_value; /* [1, heads_kv, head_dim_v, 1], dense */
} attn_layer_weights;

/* ---- computing ------------------------------------------------------------------------------------------------- */

/*
 * The sizes and tensors of one call.  Slots are of the layer's dtype; inputs and outputs are [batch, 1, tokens, channels], the last
 * axis contiguous.  One struct serves both directions: tensors that only the other direction uses, here and in `attention`, are
 * ignored.
 */
typedef struct attn_layer_tensors {
    size_t struct_size;    /* sizeof(attn_layer_tensors) */
    const attn_call *call; /* of the inner attention: seed and offset of dropout, callbacks; may be NULL */
    int64_t batch;
    int64_t len_q;
    int64_t len_kv;                /* 0 if the key is the query */
    const attn_tensors *attention; /* other tensors of the attention: bias, mask, lengths_kv, sink, weights, lse, grad_bias ...; not
                                      q, k, v, o and their gradients, nor grad_o; its own call is NULL.  May be NULL */
    const attn_options *options;   /* threads, instruction set and allocator of the attention and the projections; may be NULL */
    void *saved;                   /* NULL, or memory of attn_layer_counts.saved_bytes that forward fills and backward reads */
    int only_cached;               /* attn_layer_decode, 1: nothing is appended */
    int reserved[7];               /* must be 0 */

    attn_input query;         /* [batch, 1, len_q, dim_model] */
    attn_input key;           /* [batch, 1, len_kv, dim_key]; absent: the query (self-attention) */
    attn_input value;         /* [batch, 1, len_kv, dim_value]; absent: the key */
    attn_output output;       /* [batch, 1, len_q, dim_output]: written by forward, not used by backward */
    attn_output weights_mean; /* [batch, 1, len_q, len_kv], dense: the weights, averaged over the heads; forward */
    /* Positions of tokens for the rotation; only with a rope; dense, of i64; packed [1, 1, total tokens, 1]; absent: 0, 1, 2 ... of
     * each entry. */
    attn_input positions_q;  /* [batch, 1, len_q, 1] */
    attn_input positions_kv; /* [batch, 1, len_kv, 1] */
    attn_input lengths_q;    /* attn_layer_decode: [batch], dense, of i64: how many of the len_q tokens are real; absent: all */

    attn_input grad_output; /* backward: [batch, 1, len_q, dim_output] */
    /* Like query, key and value; absent: not requested.  If the key is the query, its gradient is part of grad_query, and if the
     * value is the key, its gradient is part of grad_key. */
    attn_output grad_query, grad_key, grad_value;
} attn_layer_tensors;

/*
 * The layer (Vaswani et al. 2017, section 3.2.2).  With x the query, key and value inputs,
 *
 *      q[b,h,i,:] = query(x_q[b,i]), k[b,g,j,:] = key(x_k[b,j]), v[b,g,j,:] = value(x_v[b,j])     rotated if there is a rope
 *      a          = attention(q, k, v)                                                        attn_compute, with its options
 *      y[b,i,:]   = output(a[b,:,i,:])
 *
 * Projections are products of attn/product.h.  The bits of outputs and gradients do not depend on the number of threads, and the
 * bits of a token do not depend on the other entries, as long as there are more than 4 rows (entries times tokens).
 *
 * Allocates what it needs for the call with options->allocator (or malloc).  Returns, with outputs untouched,
 *
 *      ATTN_ERR_ARGUMENT     NULL, struct_size, a dtype other than f32 and f64
 *      ATTN_ERR_SHAPE        sizes that do not match, or that are larger than 2^31 - 1
 *      ATTN_ERR_STRIDE       a weight of which neither model nor channel is contiguous; rows that overlap; an output that shares
 *                            elements with another tensor of the call, those of `attention` and the cache among them
 *      ATTN_ERR_MEMORY
 *
 * and what attn_compute returns.
 */
ATTN_API attn_status attn_layer_forward(const attn_layer *layer, const attn_layer_weights *weights,
                                        const attn_layer_tensors *tensors, attn_error *error);

/*
 * All gradients in one call: of the inputs (tensors), of the weights and biases (gradients, those present), and of whatever
 * tensors->attention has a gradient slot for (grad_bias, grad_alibi_slopes, grad_sink, grad_scale).  tensors->saved is as forward
 * wrote it.  Gradients are overwritten, not added to.  A gradient of the lse is used if attention->grad_lse is present.
 */
ATTN_API attn_status attn_layer_backward(const attn_layer *layer, const attn_layer_weights *weights,
                                         const attn_layer_tensors *tensors, const attn_layer_weights *gradients, attn_error *error);

/*
 * Inference over a cache (attn/cache.h; contiguous or in pages, of any of its types but q4_1c: f64 for a layer of f64): the keys
 * and values of the new tokens are appended to those of earlier tokens, and the queries attend to all of them.  For every entry b,
 * with n = cache->lengths[b] before the call,
 *
 *      token t of the key input becomes key n + t of the cache, rotated to position n + t if there is a rope
 *      query t has position n + t and sees all keys; with mask.causal those up to n + t, with a window those within it
 *
 * so with mask.causal, token by token or in chunks of any size, the outputs are those of attn_layer_forward over the whole, up to
 * rounding.
 *
 *  tensors  as in attn_layer_forward, with len_kv for the new tokens of the key input.  If the key is the query, lengths_q is
 *         how many of the tokens are real.  only_cached = 1: queries attend to the cache as it is, for example a memory that was
 *         filled once (cross-attention); n is then 0 for the queries.  len_q = 0 with a key input only appends.
 *         weights_mean is [batch, len_q, longest length in the cache afterwards].  saved is not used: there is no backward.
 *  cache  of the layer's heads_kv, head_dim and head_dim_v; its rope must be NULL: the layer's rope rotates.
 *
 * Alignment, lengths and paging are filled in and must be 0 in layer->attention and absent in tensors->attention.  Returns what
 * attn_layer_forward, attn_cache_append and attn_compute return; on any error the outputs and the cache's lengths are unchanged.
 */
ATTN_API attn_status attn_layer_decode(const attn_layer *layer, const attn_layer_weights *weights, const attn_cache *cache,
                                       const attn_layer_tensors *tensors, attn_error *error);

/* ---- counting, initialising, converting ------------------------------------------------------------------------ */

typedef struct attn_layer_counts {
    size_t struct_size;      /* in: sizeof(attn_layer_counts) */
    int64_t parameters;      /* numbers in the weights, and in the biases present in `weights` */
    int64_t cache_per_token; /* bytes of keys and values that decoding keeps per token of an entry */
    int64_t saved_bytes;     /* size of attn_layer_tensors.saved for a batch of len_q and len_kv */
    double flops;            /* multiplications and additions of forward: projections, and the attention without its masks */
} attn_layer_counts;

/* weights determines which biases there are; its other slots are ignored; NULL: none.  Packed: a batch of 1, and the total
 * tokens. */
ATTN_API attn_status attn_layer_count(const attn_layer *layer, int64_t batch, int64_t len_q, int64_t len_kv,
                                      const attn_layer_weights *weights, attn_layer_counts *counts, attn_error *error);

typedef enum attn_init {
    ATTN_INIT_XAVIER = 0, /* uniform within sqrt(6/(in+out)) of each matrix (Glorot and Bengio 2010); biases 0 */
    ATTN_INIT_HEAD = 1,   /* normal, variance 2/(in + channels of one head), for the output 2/(in + out); biases 0 */
    ATTN_INIT_SMALL = 2,  /* normal, deviation 0.02 (GPT-2); biases 0 */
    ATTN_INIT_TORCH = 3   /* torch.nn.MultiheadAttention: Xavier over the fused [3*D, D] matrix; the output uniform within
                             1/sqrt(in); biases 0 */
} attn_init;

/* Fills weights and biases with numbers that depend only on the seed, the projection and the place in it. */
ATTN_API attn_status attn_layer_initialise(const attn_layer *layer, attn_init init, uint64_t seed,
                                           const attn_layer_weights *weights, attn_error *error);

/*
 * Keys and values of fewer heads: head g of `grouped` is the mean of heads g*n .. g*n+n-1 of `weights`, n = heads_kv / groups
 * (Ainslie et al. 2023, section 2.1).  grouped->key and grouped->value are written, and biases and extra keys if both have them;
 * the layer of the result has heads_kv = groups.
 */
ATTN_API attn_status attn_layer_group_heads(const attn_layer *layer, int64_t groups, const attn_layer_weights *weights,
                                            const attn_layer_weights *grouped, attn_error *error);

/*
 * Weights from the tensors of an archive, borrowed for as long as it lives.  Names, after `prefix` ("" or such as
 * "layers.3.attn."): torch.nn.MultiheadAttention's in_proj_weight or q_proj_weight, k_proj_weight, v_proj_weight; in_proj_bias;
 * out_proj.weight, out_proj.bias; or NAME.weight and NAME.bias with q_proj, k_proj, v_proj, out_proj or o_proj; or wq wk wv wo, bq
 * bk bv bo.  bias_k and bias_v are the extra key and value.  weights [out] has its struct_size set.  Returns ATTN_ERR_ARGUMENT for
 * a missing name or a NaN, ATTN_ERR_SHAPE (both shapes in the message), ATTN_ERR_UNSUPPORTED for a type other than the layer's;
 * `weights` is then unchanged.
 */
ATTN_API attn_status attn_layer_load(const attn_layer *layer, const attn_archive *archive, const char *prefix,
                                     attn_layer_weights *weights, attn_error *error);

/* Copies the weights, as [out, in], into a container: in_proj_weight if the three inputs have one width, else q_proj_weight ...;
 * out_proj.weight; biases.  (torch.nn.MultiheadAttention's names, after `prefix`.)  All or nothing: if a name is taken or memory
 * runs out, the container is unchanged. */
ATTN_API attn_status attn_layer_store(const attn_layer *layer, const attn_layer_weights *weights, const char *prefix,
                                      attn_archive *archive, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
