/* SPDX-License-Identifier: MIT
 *
 * attn.h - the core of libattn: attention mechanisms on a CPU, in memory that grows with the sequence length.
 *
 * Three ways in, one under the other:
 *
 *      attn_forward                                           one call: plans, runs, frees
 *      attn_plan_create, attn_execute (many), attn_plan_destroy    a shape that repeats
 *      attn_plan_describe, attn_cpu_describe, attn_kernel_describe ask what happens
 *
 * The file is long because it is the manual of the core; what is a subject of its own has a header of its own.
 *
 * Conventions that hold everywhere:
 *
 *  - Zero is the default of every field but the sizes: start from `= {0}`, set struct_size and what you need.
 *  - Inputs are borrowed for the call and never written.  Outputs are written in full, padding rows too; on any error
 *    they are left untouched.  Outputs overlap neither inputs nor each other.
 *  - Functions that can fail return an attn_status and fill an optional attn_error (NULL is allowed).
 *  - Sizes and strides are int64_t; strides count elements, not bytes.
 *  - The library never prints, aborts or exits, holds no mutable global state, and reads one environment variable,
 *    ATTN_ISA, when a plan is made (see attn_options).  With ATTN_VERBOSE=1 it writes one line a plan to stderr.
 *  - Every function may be called from any number of threads at once.
 */
#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H

#include "attn/modifier.h"
#include "attn/relative.h"
#include "attn/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the problem: what to compute ----------------------------------------------------------------------------- */

typedef enum attn_op {
    ATTN_FORWARD = 0,  /* O, and on request lse and the weights */
    ATTN_BACKWARD = 1, /* dQ, dK, dV, and on request the gradients of bias, slopes, sinks and scale */
    ATTN_JVP = 2,      /* forward mode: the tangents of O and lse along given tangents of Q, K, V and bias (see attn_tangents) */
    ATTN_DOUBLE_BACKWARD = 3, /* the gradient of the gradient (see attn_second) */
    ATTN_LINEAR = 4           /* the kernels of attn/linear.h, where they are listed; no operation of attn_problem */
} attn_op;

/*
 * q is [batch, heads_q, len_q, dim_qk], k is [batch, heads_kv, len_kv, dim_qk] (attn_score.dim_k where that is set), v is [batch,
 * heads_kv, len_kv, dim_v], o is [batch, heads_q, len_q, dim_v].  Query head h reads key and value head h / (heads_q / heads_kv),
 * so heads_q must be a multiple of heads_kv.  Any size may be 0: then there is nothing to do, or the output is zeros. len_q and
 * len_kv are the sizes of the tensors; shorter sequences in them are said by attn_mask.lengths_q, lengths_kv.
 */
typedef struct attn_shape {
    int64_t batch;
    int64_t heads_q;
    int64_t heads_kv;
    int64_t len_q;
    int64_t len_kv;
    int64_t dim_qk;
    int64_t dim_v;
} attn_shape;

/*
 * What a query and a key score, s_ij = scale * x_ij.  All kinds have every mask, bias, output and gradient of ATTN_FORWARD and
 * ATTN_BACKWARD; the other operations are for dot products.  docs/mechanisms/ has a page for each.
 */
typedef enum attn_score_kind {
    ATTN_SCORE_DOT = 0,      /* x = q.k */
    ATTN_SCORE_GENERAL = 1,  /* x = q.(w k): multiplicative (Luong et al. 2015, equation 8), bilinear, or w a metric */
    ATTN_SCORE_METRIC = 2,   /* x = (w q).(w k): the learned metric w^T w, which is never formed */
    ATTN_SCORE_COSINE = 3,   /* x = q.k / (|q| |k|), 0 where q or k is 0: normalised queries and keys (Henry et al. 2020) */
    ATTN_SCORE_DISTANCE = 4, /* x = -|q - k|^2: a Gaussian kernel of variance 1/(2 scale) */
    ATTN_SCORE_ADDITIVE = 5  /* x = sum_c w_c tanh(q_c + k_c + b_c) of projected queries and keys (Bahdanau et al. 2015) */
} attn_score_kind;

typedef enum attn_scale_kind {
    ATTN_SCALE_DEFAULT = 0, /* 1/sqrt(dim_qk) for dot products (1 if dim_qk is 0), 1 for the other kinds */
    ATTN_SCALE_VALUE = 1,   /* attn_score.scale; 0 and negative numbers are legal, NaN and infinities are not */
    ATTN_SCALE_PER_HEAD = 2 /* attn_args.scale: one number for each query head, of the compute type */
} attn_scale_kind;

/*
 * What makes weights of the scores s_j of the keys that a query sees; o = sum_j weights_j v_j in all cases.  lse is the logarithm
 * of what they are divided by, and -infinity for a query that sees no key, whose weights are 0.
 *
 * The last two are functions of their own score alone: they go with everything but sinks, ATTN_EMPTY_UNIFORM, entropy,
 * effective_keys, topk and a gradient through lse, which are matters of a softmax, and with ATTN_FORWARD and ATTN_BACKWARD only.
 */
typedef enum attn_normaliser {
    ATTN_NORMALISER_SOFTMAX = 0,     /* exp(s_j) / sum_k exp(s_k), with the sink where there is one */
    ATTN_NORMALISER_SOFTMAX_ONE = 1, /* exp(s_j) / (1 + sum_k exp(s_k)): the same as a sink of 0 in each head (Miller 2023) */
    ATTN_NORMALISER_SIGMOID = 2,     /* 1 / (1 + exp(-s_j - shift)) (Ramapuram et al. 2024; there shift = -log len_kv) */
    ATTN_NORMALISER_RELU = 3         /* max(s_j, 0) / (keys that the query sees) (Wortsman et al. 2023) */
} attn_normaliser;

/*
 * The order of operations: s = scale x; s /= temperature; s = softcap * tanh(s / softcap); the
 * caller's modifier; biases (additive, ALiBi, by distance);
 * masks; the normaliser.
 *
 * w, of ATTN_SCORE_GENERAL, ATTN_SCORE_METRIC and ATTN_SCORE_ADDITIVE, is one matrix for all heads, or one for each query head.  A
 * kind prepares queries, and cosine and distance also keys, in memory of the size of these tensors, once for each call; additive
 * does so tile by tile, in memory that does not grow.
 *
 * Additive: q and k are what the projections made of the caller's queries and keys, which may differ in their channels, and dim_qk
 * is the hidden size.  w is one row, the weights; with w_bias a second one has the biases b.  Their gradient is laid out alike.
 */
typedef struct attn_score {
    attn_score_kind kind;
    attn_scale_kind scale_kind;
    double scale;
    double temperature; /* > 0; the default 0 means 1 */
    double softcap;     /* > 0; the default 0 means none */
    int64_t dim_k;      /* general: channels of a key; 0: dim_qk, which is those of a query.  0 for all other kinds */
    int64_t dim_metric; /* metric: rows of w; 0: dim_qk.  0 for all other kinds */
    int w_heads;        /* 1: each query head has a w of its own */
    attn_layout w; /* [1, heads_q or 1, dim_qk, dim_k], [1, heads_q or 1, dim_metric, dim_qk] or, additive, [1, heads_q or 1, 1 or
                      2, dim_qk], of any float type, any strides */
    int w_bias;    /* additive: 1: w has a second row, the biases */
    attn_normaliser normaliser;
    double shift;        /* of the sigmoid; one that is learned is an attn_bias.additive that broadcasts */
    int64_t reserved[4]; /* must be 0, here and in every group */
} attn_score;

/* Where query i stands among the keys: its absolute position is p_i = i + offset_b. */
typedef enum attn_align {
    ATTN_ALIGN_TOP_LEFT = 0,     /* offset_b = 0: the first query stands at the first key */
    ATTN_ALIGN_BOTTOM_RIGHT = 1, /* offset_b = lengths_kv[b] - lengths_q[b]: the last query stands at the last key */
    ATTN_ALIGN_OFFSET = 2        /* offset_b = attn_args.offset[b]; negative is legal */
} attn_align;

/* What a query that sees no key gets. */
typedef enum attn_empty {
    ATTN_EMPTY_ZERO = 0,   /* O = 0, weights 0 */
    ATTN_EMPTY_UNIFORM = 1 /* the mean of all len_kv values, weights 1/len_kv, as a mask of finite -1e9 gives in Keras and JAX */
} attn_empty;

/*
 * Which keys a query sees.  Key j is visible to query i of batch entry b iff all of these hold:
 *
 *      j < lengths_kv[b]  and  i < lengths_q[b]             where lengths are in use
 *      j <= p_i                                              if causal
 *      p_i - window_left <= j <= p_i + window_right          if window; a bound of -1 is no bound    } or j < global_kv
 *      (p_i - j) mod dilation = 0                            if dilation > 1                         } or 0 <= p_i < global_q
 *      floor(j / chunk) = floor(p_i / chunk)                 if chunk > 0
 *      ranges[b,h,i,0] <= j < ranges[b,h,i,1]                if ranges
 *      mask[b,h,i,j] != 0                                    if boolean
 *      blocks[b,h,floor(i/block_q),floor(j/block_kv)] != 0   if block
 *      floor(j/block_kv) is in list floor(i/block_q)         if block_lists
 *      bias[b,h,i,j] != -infinity                            if attn_bias.additive
 *
 * Global tokens are the first of a sequence: all queries see global_kv keys whatever window and dilation say, and global_q queries
 * see all keys (Beltagy et al. 2020, "Longformer").  The other rules bind them too.  What no query of a tile sees costs nothing,
 * but for a boolean mask, a bias, and a dilation below the tile's size, which hide keys without saving their work.  attn/mask.h
 * sets these fields by the names that masks go by.
 *
 * What a query does not see is not read into its result: NaN or Inf there reaches nothing.
 * A query that sees no key gets O = 0, weights 0 and lse = -infinity (the sink, where there is one), unless `empty` says otherwise.
 *
 * packed: sequences of different lengths lie one behind the other.  q and o have shape [heads_q, total queries, dim] (strides
 * of h, token and channel; that of b is not used), lse likewise, k and v [heads_kv, total keys, dim]; batch entry b owns the tokens
 * cu_seqlens_q[b] .. cu_seqlens_q[b+1]-1 and cu_seqlens_kv[b] .. cu_seqlens_kv[b+1]-1.  len_q and len_kv are the longest of them,
 * and lengths follow from the differences.  Masks, bias and weights keep their axis b.
 */
typedef struct attn_mask {
    int causal;
    attn_align align;
    int window; /* 1: window_left and window_right hold */
    int64_t window_left;
    int64_t window_right;
    int lengths_q; /* 1: attn_args.lengths_q has the number of real queries of each batch entry */
    int lengths_kv;
    int64_t chunk;          /* keys of the same chunk only; 0: no chunks */
    int packed;             /* 1: attn_args.cu_seqlens_q and cu_seqlens_kv hold; not with lengths_q, lengths_kv */
    attn_dtype index_dtype; /* of lengths, cu_seqlens and offset: ATTN_I32 or ATTN_I64 (default) */
    int boolean;            /* 1: attn_args.mask is read; 1 = keep */
    attn_layout mask;       /* [batch, heads_q, len_q, len_kv] of ATTN_BOOL, any strides; 0 broadcasts */
    int block;              /* 1: attn_args.blocks is read; 1 = keep */
    int64_t block_q;        /* queries and keys that one entry of `blocks` speaks for */
    int64_t block_kv;
    attn_layout blocks; /* [batch, heads_q, ceil(len_q/block_q), ceil(len_kv/block_kv)] of ATTN_BOOL, any strides */
    attn_empty empty;
    int64_t dilation; /* 0 or 1: every key */
    int64_t global_q;
    int64_t global_kv;
    int ranges;                /* 1: attn_args.ranges is read */
    attn_layout ranges_layout; /* [batch, heads_q, len_q, 2] of ATTN_I64 (default) or ATTN_I32, any strides; 0 broadcasts */
    int block_lists; /* 1: the block mask as lists (compressed rows): attn_args.block_rows and block_columns; not with block */
    int64_t block_entries; /* how many numbers block_columns has */
    int64_t reserved[4];
} attn_mask;

/* ALiBi (Press et al. 2022): s_ij -= slope * |p_i - j|. */
typedef enum attn_alibi {
    ATTN_ALIBI_NONE = 0,
    ATTN_ALIBI_HEAD = 1,      /* attn_args.slopes is [heads_q] */
    ATTN_ALIBI_BATCH_HEAD = 2 /* attn_args.slopes is [batch, heads_q] */
} attn_alibi;

/* What is added to the scores.  An additive bias: s_ij += bias[b,h,i,j], in the compute type; -infinity drops the key, any finite
 * value is a number.  Slopes and sinks are dense arrays of the compute type. */
typedef struct attn_bias {
    int additive;     /* 1: attn_args.bias is read */
    attn_layout bias; /* [batch, heads_q, len_q, len_kv] of f32, f64, f16 or bf16, any strides; 0 broadcasts */
    attn_alibi alibi;
    int sink; /* 1: attn_args.sink [heads_q] joins each denominator, with no key behind it (gpt-oss; "softmax off by one" is sink 0)
               */
    int64_t reserved[4];
} attn_bias;

/*
 * Dropout of weights after the softmax: O_i = sum_j keep_ij / (1-p) weights_ij v_j.  keep_ij = word j%4 of Philox4x32-10 with key =
 * attn_args.dropout_seed and counter = (attn_args.dropout_offset, b*heads_q + h, i, floor(j/4)) is at least p * 2^32: the mask
 * depends on these numbers alone, so backward draws the same one, on any number of threads.  Or the caller has drawn: with `given`,
 * keep_ij = attn_args.dropout_given[b,h,i,j] != 0, and p only scales.  lse and weights are those before dropout;
 * attn_want.after_dropout gives weights after it.
 */
typedef struct attn_dropout {
    double probability;       /* p, 0 <= p <= 1; p = 1 gives O = 0 */
    int given;                /* 1: attn_args.dropout_given is read, and nothing is drawn */
    attn_layout given_layout; /* [batch, heads_q, len_q, len_kv] of ATTN_BOOL, any strides; 0 broadcasts */
    int64_t reserved[4];
} attn_dropout;

/*
 * Keys and values in pages, as inference engines keep them: k is [pages, heads_kv, page_size, dim_qk] and v
 * [pages, heads_kv, page_size, dim_v] (strides of page, head, token, channel), and key j of batch entry b is token j % page_size of
 * page attn_args.page_table[b*table_stride + j / page_size].  Entries past a sequence's length are not read.  ATTN_FORWARD only.
 */
typedef struct attn_paging {
    int paged;            /* 1: attn_args.page_table is read, of attn_mask.index_dtype */
    int64_t page_size;    /* tokens of a page */
    int64_t pages;        /* in k and v */
    int64_t table_stride; /* entries of the table for each batch entry; 0: ceil(len_kv / page_size) */
    int64_t reserved[4];
} attn_paging;

/*
 * Keys and values as whole numbers: where k.dtype (v.dtype) is ATTN_I8, attn_args.k_scale (v_scale) has a number for each token and
 * head, and the key is k[b,g,j,c] = k_scale[b,g,j] * stored[b,g,j,c].  That is what it is, exactly: the error is that of f32 keys.
 * attn/cache.h quantises so while it appends.  ATTN_FORWARD only, and q is not f64.
 */
typedef struct attn_quantised {
    attn_layout k_scale; /* [batch, heads_kv, len_kv, 1], in pages [pages, heads_kv, page_size, 1], of f32; any strides, */
    attn_layout v_scale; /* 0 broadcasts */
    int64_t reserved[4];
} attn_quantised;

/* Outputs of ATTN_BACKWARD beside dQ, dK and dV, and its inputs beside dO. */
typedef struct attn_gradients {
    int lse;    /* 1: attn_args.grad_lse is read, laid out like lse: the gradient that arrives through lse */
    int bias;   /* 1: attn_args.grad_bias is written, reduced over the axes that bias broadcasts */
    int slopes; /* 1: attn_args.grad_slopes is written; also sink, scale (for each head): dense, of the compute type */
    int sink;
    int scale;
    attn_layout grad_o;    /* the shape of o */
    attn_layout grad_q;    /* the shape of q */
    attn_layout grad_k;    /* the shape of k */
    attn_layout grad_v;    /* the shape of v */
    attn_layout grad_bias; /* the shape of bias: 1 on the axes that bias broadcasts (stride 0); the type of bias by default */
    int w;                 /* 1: attn_args.grad_w is written, summed over batch and, where heads share w, over heads */
    attn_layout grad_w;    /* the shape of w; the type of w by default */
    int bias_table;        /* 1: attn_args.grad_bias_table is written, summed over the batch and the heads that share a table */
    attn_layout grad_bias_table; /* the shape of bias_table; the type of bias_table by default */
    int relative; /* 1: attn_args.grad_relative_keys, _values, _u and _v are written, as far as the problem has them */
    attn_layout grad_relative_keys; /* the shapes of these; their types by default */
    attn_layout grad_relative_values;
    int64_t reserved[4];
} attn_gradients;

/*
 * ATTN_JVP: how O and lse change as q, k, v and bias move along tangents (dots).  Inputs beside these are o and lse, as forward
 * left them, so any number of tangents follow one forward.  Equals, with x_ij = scale * q_i.k_j before the softcap f (or f(x) = x),
 * and keep_ij the factor of dropout (0 or 1/(1-p); else 1),
 *
 *      s'_ij      = f'(x_ij) * scale * (q'_i.k_j + q_i.k'_j) + bias'_ij
 *      tan_lse_i  = sum_j weights_ij s'_ij
 *      tan_o_i    = sum_j keep_ij weights_ij ((s'_ij - tan_lse_i) v_j + v'_j)
 *
 * in one walk over the keys, in memory that grows with n.  A row without keys has tangent 0; an ATTN_EMPTY_UNIFORM one the mean of
 * v'. Masks hold, and dropout draws the same weights, as in forward.  What is not given counts as 0.
 */
typedef struct attn_tangents {
    int q; /* 1: attn_args.tan_q is read; likewise k, v and bias */
    int k;
    int v;
    int bias;
    int lse;              /* 1: attn_args.tan_lse is written, laid out like lse */
    attn_layout tan_q;    /* the shape of q */
    attn_layout tan_k;    /* the shape of k */
    attn_layout tan_v;    /* the shape of v */
    attn_layout tan_bias; /* the shape of bias, any strides, 0 broadcasts; the type of bias by default */
    attn_layout tan_o;    /* the shape of o */
    int64_t reserved[4];
} attn_tangents;

/*
 * ATTN_DOUBLE_BACKWARD: the gradient of what ATTN_BACKWARD computes.  What flows back into grad_q, grad_k, grad_v and grad_bias
 * comes as attn_args.tan_q, tan_k, tan_v and tan_bias, with the flags and layouts of attn_tangents (not given: 0), since the number
 * that is differentiated,
 *
 *      <grad_q, tan_q> + <grad_k, tan_k> + <grad_v, tan_v> + <grad_bias, tan_bias> = <grad_o, tan_o> + <grad_lse, tan_lse>,
 *
 * is also the inner product of forward mode: so this is its Hessian-vector product too.  Inputs beside these are those of
 * ATTN_BACKWARD: q, k, v, o, lse, grad_o, and grad_lse with gradients.lse.  With s', x, f and keep as in attn_tangents, and x' what
 * f' multiplies in s',
 *
 *      ds_ij  = weights_ij (keep_ij grad_o_i.v_j - grad_o_i.o_i + grad_lse_i)
 *      r_ij   = (s'_ij - tan_lse_i) ds_ij + weights_ij (keep_ij grad_o_i.v'_j - grad_o_i.tan_o_i)
 *      dx_ij  = r_ij f'(x_ij) + ds_ij f''(x_ij) x'_ij
 *
 *      second_grad_o    = tan_o                                             second_grad_lse = tan_lse
 *      second_q_i       = sum_j scale (dx_ij k_j + ds_ij f'(x_ij) k'_j)
 *      second_k_j       = sum_i scale (dx_ij q_i + ds_ij f'(x_ij) q'_i)     over the query heads of the group
 *      second_v_j       = sum_i keep_ij weights_ij (s'_ij - tan_lse_i) grad_o_i
 *      second_bias      = r, reduced over the axes that bias broadcasts
 *
 * in two walks over the keys, in memory that grows with n; with the same bits for any number of threads.  Nothing flows back into
 * the gradients of slopes, sinks and scale.
 */
typedef struct attn_second {
    int bias;                  /* 1: attn_args.second_bias is written */
    int grad_lse;              /* 1: attn_args.second_grad_lse is written, laid out like lse */
    attn_layout second_grad_o; /* the shape of o */
    attn_layout second_q;      /* the shape of q */
    attn_layout second_k;      /* the shape of k */
    attn_layout second_v;      /* the shape of v */
    attn_layout second_bias;   /* as attn_gradients.grad_bias */
    int64_t reserved[4];
} attn_second;

/*
 * How far a score has come, each stage with what the ones before it did.  The numbers are those of qk_matmul_output_mode of ONNX's
 * Attention, which has the same order.
 */
typedef enum attn_stage {
    ATTN_STAGE_RAW = 0,    /* scale/temperature * q.k of every pair: nothing is dropped yet, so every key and query is read */
    ATTN_STAGE_CAPPED = 1, /* softcap */
    ATTN_STAGE_BIASED = 2, /* bias, ALiBi, and -infinity for each key that the query does not see */
    ATTN_STAGE_WEIGHTS = 3 /* softmax */
} attn_stage;

/* Which heads share a column sum. */
typedef enum attn_columns {
    ATTN_COLUMNS_EACH = 0,  /* none: heads_q sums */
    ATTN_COLUMNS_GROUP = 1, /* the query heads of one key head: heads_kv sums, as a cache that drops keys wants them */
    ATTN_COLUMNS_ALL = 2    /* all: one sum */
} attn_columns;

/*
 * Outputs of ATTN_FORWARD beside O.  With s_j and weights_j as attn_forward has them, over the keys j that query i sees:
 *
 *      row_max[b,h,i]         = max_j s_j                            -infinity where it sees none
 *      entropy[b,h,i]         = -sum_j weights_j log(weights_j)      in nats; 0 where it sees none
 *      effective_keys[b,h,i]  = exp(entropy[b,h,i])                  0 where it sees none
 *      topk_index[b,h,i,:]    = the `topk` keys of the largest weights, largest first; of equal ones the lowest index first
 *      topk_weight[b,h,i,:]   = their weights                        index -1 and weight 0 past the keys that it sees
 *      column_sum[b,h,j]      = sum_i weights_ij                     what key j receives from the last `column_queries` queries
 *
 * All of these are before dropout.  A sink takes its part of the weight and is no key: the weights are as they are, and need not
 * sum to 1.  A row that sees no key but weighs all alike (ATTN_EMPTY_UNIFORM) counts with these weights, and has row_max -infinity.
 * A row with NaN in its weights has NaN in row_max, entropy, effective_keys and topk_weight, and index -1.
 *
 * They need no memory of size len_q * len_kv and take one product more; column sums take another.  Only weights, scores and
 * dropout_keep have that size, and lie in the caller's memory; `rows` hands out the same numbers by row ranges (attn_visit_rows),
 * from a buffer of a few rows for each thread.  Packed: row_max, entropy, effective_keys and topk lie like lse, and column_sum like
 * k.
 */
typedef struct attn_want {
    int lse;           /* 1: attn_args.lse is written */
    int weights;       /* 1: attn_args.weights is written */
    int after_dropout; /* 1: weights, and scores and rows of ATTN_STAGE_WEIGHTS, are those after dropout: times keep_ij / (1-p) */
    int scores;        /* 1: attn_args.scores is written, of scores_stage */
    int rows;          /* 1: attn_args.visit_rows is called with every row, of rows_stage */
    int dropout_keep;  /* 1: attn_args.dropout_keep is written: keep_ij of attn_dropout, 1 or 0, for every pair, seen or not */
    int row_max;       /* 1: attn_args.row_max is written, and so on */
    int entropy;
    int effective_keys;
    int column_sum;
    attn_stage scores_stage;
    attn_stage rows_stage;
    attn_columns column_heads;
    int64_t column_queries;            /* how many of each sequence's last queries; 0: all */
    int64_t topk;                      /* keys for each query; 0: attn_args.topk_index and topk_weight are not written */
    attn_layout lse_layout;            /* [batch, heads_q, len_q, 1]; f32, or f64 where the compute type is f64 */
    attn_layout weights_layout;        /* [batch, heads_q, len_q, len_kv], last axis contiguous */
    attn_layout scores_layout;         /* the same */
    attn_layout dropout_keep_layout;   /* the same, of ATTN_BOOL or ATTN_U8 */
    attn_layout row_max_layout;        /* [batch, heads_q, len_q, 1] of the compute type */
    attn_layout entropy_layout;        /* the same */
    attn_layout effective_keys_layout; /* the same */
    attn_layout column_sum_layout;     /* [batch, as many heads as sums, len_kv, 1] of the compute type */
    attn_layout topk_index_layout;     /* [batch, heads_q, len_q, topk], last axis contiguous; ATTN_I64 (default) or ATTN_I32 */
    attn_layout topk_weight_layout;    /* [batch, heads_q, len_q, topk], last axis contiguous; of the compute type */
    int64_t reserved[4];
} attn_want;

/*
 * One attention, without its data.
 *
 * Storage types of q, k, v and o are f32, f16 and bf16 in any mixture (k and v also i8: see attn_quantised), computed in f32 and
 * rounded once on store; or all four are f64, computed in f64.
 */
typedef struct attn_problem {
    size_t struct_size; /* sizeof(attn_problem) */
    attn_op op;
    attn_shape shape;
    attn_layout q;
    attn_layout k;
    attn_layout v;
    attn_layout o;
    attn_score score;
    attn_mask mask;
    attn_bias bias;
    attn_dropout dropout;
    attn_want want;
    attn_gradients gradients;
    attn_tangents tangents;
    attn_second second;
    attn_paging paging;
    attn_quantised quantised;
    attn_bias_table bias_table; /* attn/relative.h */
    attn_modifier modifier;     /* attn/modifier.h */
    attn_relative relative;     /* attn/relative.h */
} attn_problem;

/* ---- the arguments: what changes from call to call ------------------------------------------------------------- */

/* Queries first .. first+count-1 of one head, each with len_kv numbers: query first+i and key j at values[i*stride + j]. */
typedef struct attn_rows {
    int64_t batch, head, first, count, len_kv;
    const void *values; /* valid until the call returns */
    attn_dtype dtype;   /* the compute type */
    int64_t stride;
} attn_rows;

/*
 * The caller's view of weights or scores that are never stored as a whole.  Each row of each head is in exactly one call.  The
 * calls come from the threads that compute, several at once and in any order; which rows come together depends on the kernel, and
 * the numbers in them do not.
 */
typedef void attn_visit_rows(void *context, const attn_rows *rows);

/*
 * Pointers to the first element (b = h = token = channel = 0) of each tensor.  A pointer that the problem does not use is
 * ignored; one that it uses must not be NULL unless its tensor has no elements.  Each need only be aligned to its element.
 * Index arrays have `batch` elements of attn_mask.index_dtype; lengths lie within 0 and the tensor's length.
 */
typedef struct attn_args {
    size_t struct_size; /* sizeof(attn_args) */
    const void *q;
    const void *k;
    const void *v;
    void *o;
    void *lse;
    void *weights;
    const void *mask;
    const void *bias;
    const void *lengths_q;
    const void *lengths_kv;
    const void *offset;
    const void *cu_seqlens_q; /* batch + 1 numbers, the first one 0, never falling */
    const void *cu_seqlens_kv;
    const void *blocks;
    const void *scale; /* [heads_q] */
    const void *slopes;
    const void *sink;
    uint64_t dropout_seed;
    uint32_t dropout_offset;
    const void *dropout_given;
    const void *grad_o; /* ATTN_BACKWARD: o and lse are inputs too, as forward left them */
    const void *grad_lse;
    void *grad_q;
    void *grad_k;
    void *grad_v;
    void *grad_bias;
    void *grad_slopes; /* the shape of slopes */
    void *grad_sink;
    void *grad_scale;  /* [heads_q]: of the scale of each head, whatever scale_kind */
    const void *tan_q; /* ATTN_JVP: o and lse are inputs too, as forward left them */
    const void *tan_k;
    const void *tan_v;
    const void *tan_bias;
    void *tan_o;
    void *tan_lse;
    void *second_grad_o; /* ATTN_DOUBLE_BACKWARD: grad_o, and the tangents as given, are inputs too */
    void *second_grad_lse;
    void *second_q;
    void *second_k;
    void *second_v;
    void *second_bias;
    const void *page_table;
    void *scores; /* of attn_want, from here on */
    void *dropout_keep;
    void *row_max;
    void *entropy;
    void *effective_keys;
    void *column_sum;
    void *topk_index;
    void *topk_weight;
    attn_visit_rows *visit_rows;
    void *visit_context;
    const void *ranges;        /* the first key that a query may see, and the one behind the last; any numbers */
    const void *block_rows;    /* ceil(len_q/block_q) + 1 numbers of attn_mask.index_dtype, from 0 to block_entries, never falling:
                                  where    each list starts, the same for all heads and batch entries */
    const void *block_columns; /* the lists: numbers of blocks of keys, rising within a list */
    const void *w;             /* of attn_score */
    void *grad_w;
    const void *k_scale; /* of attn_quantised */
    const void *v_scale;
    const void *bias_table; /* of attn_bias_table */
    void *grad_bias_table;
    attn_modify_tile *modify_scores; /* of attn_modifier */
    attn_modify_tile *modify_slopes;
    void *modify_context;
    const void *relative_keys; /* of attn_relative */
    const void *relative_values;
    const void *relative_u;
    const void *relative_v;
    void *grad_relative_keys;
    void *grad_relative_values;
    void *grad_relative_u;
    void *grad_relative_v;
} attn_args;

/* ---- options: whose memory, whose threads, which instruction set ---------------------------------------------- */

/* Instruction sets, worst to best. */
typedef enum attn_isa {
    ATTN_ISA_DEFAULT = 0, /* the best that the CPU has, capped by the environment variable ATTN_ISA (scalar, avx2, avx512) */
    ATTN_ISA_SCALAR = 1,
    ATTN_ISA_AVX2 = 2,  /* with FMA and F16C */
    ATTN_ISA_AVX512 = 3 /* F, BW, DQ, VL */
} attn_isa;

/* "scalar", "avx2", "avx512"; "default" for 0, "unknown" otherwise. */
ATTN_API const char *attn_isa_name(attn_isa isa);

/* Both or none.  allocate returns at least `bytes` bytes aligned to 64, or NULL; release accepts what allocate returned. */
typedef struct attn_allocator {
    void *(*allocate)(void *context, size_t bytes);
    void (*release)(void *context, void *memory);
    void *context;
} attn_allocator;

/*
 * The caller's thread pool.  Must be equivalent to
 *
 *      for (int64_t i = 0; i < n; i++) body(body_context, i);
 *
 * with the calls in any order and on any threads, and return when all of them have returned.
 */
typedef void attn_parallel_for(void *context, int64_t n, void (*body)(void *body_context, int64_t i), void *body_context);

typedef struct attn_options {
    size_t struct_size; /* sizeof(attn_options) */
    int threads;        /* how many may work at once; 0: what OpenMP would use, or 1 without OpenMP */
    attn_isa isa;       /* exactly this one, or an error */
    attn_allocator allocator;
    attn_parallel_for *parallel_for; /* NULL: OpenMP where the library was built with it, else the calling thread */
    void *parallel_context;
} attn_options;

/* ---- computing ------------------------------------------------------------------------------------------------- */

/*
 * Softmax attention, forward.  Equals, for every b, h and i,
 *
 *      g           = h / (heads_q / heads_kv)
 *      s_j         = scale * sum_c q[b,h,i,c] * k[b,g,j,c] + bias[b,h,i,j]       for every visible j (see attn_mask)
 *      lse[b,h,i]  = log(sum_j exp(s_j))
 *      weights_j   = exp(s_j - lse[b,h,i])
 *      o[b,h,i,:]  = sum_j weights_j * v[b,g,j,:]
 *
 * (Vaswani et al. 2017, equation 1; computed by the online softmax of Milakov and Gimelshein 2018 in tiles, so that nothing
 * of size len_q * len_kv exists unless the weights are asked for.)  Exact but for rounding: docs/numerics.md has the bound.
 * The result has the same bits for any number of threads, any batch around a row, and any alignment of the pointers.
 *
 *  problem  [in]  what to compute
 *  args     [in]  where its tensors are
 *  error    [out] may be NULL
 *
 * Plans, allocates a workspace, runs and frees.  Hold a plan where a shape repeats.
 * Returns ATTN_OK, or, with outputs untouched, what attn_plan_create and attn_execute return.
 */
ATTN_API attn_status attn_forward(const attn_problem *problem, const attn_args *args, attn_error *error);

/* A problem that was checked, with the kernel, the tiles and the memory it will use.  Immutable: any number of threads may
 * execute one plan at the same time, each with a workspace of its own. */
typedef struct attn_plan attn_plan;

/*
 * Checks `problem`, chooses a kernel and sizes the workspace.  options may be NULL.  Allocates one block, by
 * options->allocator; both structs are copied and need not outlive the call.
 * On failure *plan is NULL.  Returns
 *      ATTN_ERR_ARGUMENT     NULL, struct_size too small, unknown enum value, a number out of its range
 *      ATTN_ERR_SHAPE        negative sizes, heads_q not a multiple of heads_kv, an overflowing product
 *      ATTN_ERR_STRIDE       last axis not contiguous, an output that overlaps itself
 *      ATTN_ERR_UNSUPPORTED  mixed f64 and other storage, an instruction set that this CPU or build lacks
 *      ATTN_ERR_MEMORY       the allocator returned NULL
 */
ATTN_API attn_status attn_plan_create(attn_plan **plan, const attn_problem *problem, const attn_options *options,
                                      attn_error *error);

/* Bytes of workspace that attn_execute needs; 0 is possible.  Grows with threads, head sizes and, for some outputs, len_q or
 * len_kv; never with len_q * len_kv. */
ATTN_API size_t attn_plan_workspace_size(const attn_plan *plan);

/*
 * Runs a plan.  Allocates nothing.  workspace has workspace_size >= attn_plan_workspace_size(plan) bytes of any alignment, is not
 * shared with a concurrent call, and holds nothing of use afterwards.  Returns, with outputs untouched,
 *      ATTN_ERR_ARGUMENT     NULL where the problem needs a tensor, a length or offset out of its range
 *      ATTN_ERR_STRIDE       a packed output that overlaps itself, now that cu_seqlens says how many tokens there are
 *      ATTN_ERR_SHAPE        a packed tensor of more elements than 64-bit addresses hold
 *      ATTN_ERR_MEMORY       workspace too small
 */
ATTN_API attn_status attn_execute(const attn_plan *plan, const attn_args *args, void *workspace, size_t workspace_size,
                                  attn_error *error);

/* Frees a plan; NULL is a no-op. */
ATTN_API void attn_plan_destroy(attn_plan *plan);

/* ---- merging parts --------------------------------------------------------------------------------------------- */

/*
 * Results of the same queries over disjoint sets of keys, to be merged into the result over all of them.  o is the layout of every
 * part's O and of the merged one, [batch, heads, len_q, dim_v] of f32, f64, f16 or bf16; lse likewise, [batch, heads, len_q, 1] of
 * f32, or f64 where o is f64.
 */
typedef struct attn_merge_problem {
    size_t struct_size; /* sizeof(attn_merge_problem) */
    int64_t parts;      /* at least 1 */
    int64_t batch;
    int64_t heads;
    int64_t len_q;
    int64_t dim_v;
    attn_layout o;
    attn_layout lse;
} attn_merge_problem;

/*
 * For every row, with p over the parts,
 *
 *      lse = log(sum_p exp(lse_p))      o = sum_p exp(lse_p - lse) o_p
 *
 * exact but for rounding (Dao et al. 2023, "Flash-Decoding"; computed in double and rounded once).  A part with lse_p = -infinity
 * weighs nothing, whatever stands in its O; where all are, o = 0 and lse = -infinity.  o_parts and lse_parts have `parts` pointers;
 * lse may be NULL.  o may be one of the parts, since a row is read before it is written. Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE,
 * ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED with outputs untouched.
 */
ATTN_API attn_status attn_merge(const attn_merge_problem *problem, const void *const *o_parts, const void *const *lse_parts,
                                void *o, void *lse, attn_error *error);

/*
 * The gradient of attn_merge: from that of o and of lse (NULL: 0),
 *
 *      w_p = exp(lse_p - lse)      grad_o_p = w_p grad_o      grad_lse_p = w_p (grad_o . (o_p - o) + grad_lse)
 *
 * into `parts` buffers each, laid out like o and lse.
 */
ATTN_API attn_status attn_merge_backward(const attn_merge_problem *problem, const void *const *o_parts,
                                         const void *const *lse_parts, const void *grad_o, const void *grad_lse,
                                         void *const *grad_o_parts, void *const *grad_lse_parts, attn_error *error);

/* dst[i] = src[i] for `count` elements of f32, f64, f16 or bf16, rounded once, to nearest even.  Does nothing for other types.  dst
 * may be src where the types are the same size. */
ATTN_API void attn_convert(void *dst, attn_dtype dst_dtype, const void *src, attn_dtype src_dtype, int64_t count);

/* ---- asking ---------------------------------------------------------------------------------------------------- */

/*
 * What a plan will do.  A tile is tile_q queries times block_kv keys; counts are over the whole problem at its full lengths
 * (lengths_q, lengths_kv and explicit offsets are known only at execution and count as full and 0), exact up to
 * 2^18 query tiles a head and from a sample of as many beyond.  Texts belong to the plan.
 */
typedef struct attn_plan_description {
    size_t struct_size; /* in: sizeof(attn_plan_description) */
    const char *kernel; /* "attn_fwd_f32_avx2" */
    const char *why; /* why this kernel: "best of 3 usable on this CPU", "asked for by options.isa", ...; "; decode, since ..." */
                     /* where keys are read in place for few queries, "; tiles, since ..." where an option keeps few from it */
    attn_isa isa;
    attn_dtype compute;
    int threads;
    int64_t tile_q;
    int64_t block_kv;
    int64_t tiles_total;    /* tiles of the full len_q x len_kv rectangles */
    int64_t tiles_visited;  /* of these, computed: the others hold no visible key */
    int64_t tiles_modified; /* of these, passed through a mask or bias */
    size_t workspace_bytes;
    double flops; /* 2*(dim_qk + dim_v) for each visible (query, key) pair; boolean masks are not counted out */
} attn_plan_description;

ATTN_API attn_status attn_plan_describe(const attn_plan *plan, attn_plan_description *description, attn_error *error);

typedef struct attn_cpu_description {
    size_t struct_size; /* in: sizeof(attn_cpu_description) */
    char name[64];      /* "AMD EPYC 9654 96-Core Processor"; "unknown" where the CPU does not say */
    char features[240]; /* space-separated: "avx2 fma f16c avx512f ..."; only what the operating system enables too */
    attn_isa isa;       /* the best usable one, before ATTN_ISA */
    int threads;        /* what options.threads = 0 would mean now */
    size_t cache_l1d;   /* bytes, 0 if unknown */
    size_t cache_l2;
    size_t cache_l3;
} attn_cpu_description;

ATTN_API attn_status attn_cpu_describe(attn_cpu_description *description, attn_error *error);

typedef struct attn_kernel_description {
    size_t struct_size; /* in: sizeof(attn_kernel_description) */
    const char *name;   /* "attn_fwd_f32_avx2" */
    char needs[96];     /* CPU features: "avx2 fma f16c"; "" for none */
    attn_op op;
    attn_isa isa;
    attn_dtype compute;
    int usable; /* 1 if this CPU can run it */
    int decode; /* 1: forward for few queries and many keys, which the plan chooses by itself (attn_plan_description.why) */
} attn_kernel_description;

/* Describes kernel number `index` (0, 1, ... in order of preference).  ATTN_ERR_ARGUMENT past the last one. */
ATTN_API attn_status attn_kernel_describe(int index, attn_kernel_description *description, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
