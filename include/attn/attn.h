/* SPDX-License-Identifier: MIT
 *
 * attn.h - the core of libattn: attention mechanisms on a CPU, in memory that grows with the sequence length.
 *
 *      attn_problem p = {.struct_size = sizeof p, .shape = {1, 8, 8, 512, 512, 64, 64}, .mask.causal = 1};
 *      attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
 *      attn_compute(&p, &t, &error);
 *
 * Three ways in, one under the other:
 *
 *      attn_compute                                           one call: plans, runs, frees
 *      attn_plan_create, attn_execute (many), attn_plan_destroy    a shape that repeats
 *      attn_plan_describe, attn_plan_tensor, attn_tensor_describe, attn_cpu_describe, attn_kernel_describe    ask what happens
 *
 * attn_problem says what to compute: sizes, choices and numbers.  attn_tensors has one field a tensor: where it is, its type and
 * its strides.  The file is long because it is the manual of the core; what is a subject of its own has a header of its own.
 *
 * Conventions that hold everywhere (docs/conventions.md has the grammar of names too):
 *
 *  - Zero is the default of every field but the sizes: start from `= {0}`, set struct_size and what you need.
 *  - A tensor that is there is used: an output is computed, an input takes part.  One that the problem has no use for is an error
 *    that names it, and so are two that exclude each other; a slot of zeros is a tensor that is not there.
 *  - Inputs are borrowed for the call and never written.  Outputs are written in full, padding rows too; on any error they are left
 *    untouched.  Outputs share elements with no input and no other output, which is decided element by element: dQ, dK and dV
 *    in one [batch, token, 3, head, channel] buffer are fine.
 *  - What cannot be known is the caller's to get right: that memory is as large as shapes and strides say.
 *  - Functions that can fail return an attn_status and fill an optional attn_error (NULL is allowed).
 *  - Sizes and strides are int64_t; strides count elements, not bytes.
 *  - struct_size is sizeof the struct, as the caller was compiled.  A newer library takes what it does not find as zeros; an older
 *    one rejects a field that it does not know, unless it is zero.  Reserved words must be 0.
 *  - The library never aborts, exits or prints (but one line a plan to stderr, where the environment has ATTN_VERBOSE=1), and holds
 *    no mutable global state but its pool of threads and what it found of the CPU.  Planning reads ATTN_ISA, ATTN_THREADS and
 *    OMP_NUM_THREADS (attn_options).
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
    ATTN_FORWARD = 0,         /* o, and on request lse, the weights and other outputs */
    ATTN_BACKWARD = 1,        /* grad_q, grad_k, grad_v, and on request the gradients of every other float input */
    ATTN_JVP = 2,             /* forward mode: the tangents of o and lse along given tangents of q, k, v and bias */
    ATTN_DOUBLE_BACKWARD = 3, /* the gradient of the gradient */
    ATTN_LINEAR = 4,          /* the kernels of attn/linear.h, where they are listed; no operation of attn_problem */
    ATTN_PRODUCT = 5          /* likewise those of attn/product.h */
} attn_op;

/*
 * The sizes that the shapes of all tensors are made of.  Query head h reads key and value head h / (heads_q / heads_kv), so heads_q
 * must be a multiple of heads_kv.  Any size may be 0, but not all: then there is nothing to do, or the output is zeros.  len_q and
 * len_kv are the sizes of the tensors; shorter sequences in them are given by the tensors lengths_q, lengths_kv.
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
    ATTN_SCALE_DEFAULT = 0, /* 1/sqrt(dim_qk) for dot products (1 if dim_qk is 0), 1 for the other kinds; or the tensor scale */
    ATTN_SCALE_VALUE = 1    /* attn_score.scale; 0 and negative numbers are legal, NaN and infinities are not */
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
 * The order of operations: s = scale x; s /= temperature; s = softcap * tanh(s / softcap); the caller's modifier; biases (additive,
 * ALiBi, by distance); masks; the normaliser.
 *
 * score_matrix, of ATTN_SCORE_GENERAL, ATTN_SCORE_METRIC and ATTN_SCORE_ADDITIVE, is w above.  A kind prepares queries, and cosine
 * and distance also keys, in memory of the size of these tensors, once for each call; additive does so tile by tile, in memory that
 * does not grow.
 *
 * Additive: q and k are what the projections made of the caller's queries and keys, which may differ in their channels, and dim_qk
 * is the hidden size.  w is one row, the weights; with additive_bias a second one has the biases b.  Their gradient is laid out
 * alike.
 */
typedef struct attn_score {
    attn_score_kind kind;
    attn_scale_kind scale_kind;
    double scale;
    double temperature; /* > 0; the default 0 means 1 */
    double softcap;     /* > 0; the default 0 means none */
    int64_t dim_k;      /* general: channels of a key; 0: dim_qk, which is those of a query.  0 for all other kinds */
    int64_t dim_metric; /* metric: rows of w; 0: dim_qk.  0 for all other kinds */
    int additive_bias;  /* additive: 1: score_matrix has a second row, the biases */
    attn_normaliser normaliser;
    double shift; /* of the sigmoid; one that is learned is a bias that broadcasts */
    int64_t reserved[8];
} attn_score;

/* Where query i stands among the keys: its absolute position is p_i = i + offset_b. */
typedef enum attn_align {
    ATTN_ALIGN_TOP_LEFT = 0,    /* offset_b = 0, or the tensor offset_q: the first query stands at the first key */
    ATTN_ALIGN_BOTTOM_RIGHT = 1 /* offset_b = lengths_kv[b] - lengths_q[b]: the last query stands at the last key */
} attn_align;

/* What a query that sees no key gets. */
typedef enum attn_empty {
    ATTN_EMPTY_ZERO = 0,   /* o = 0, weights 0 */
    ATTN_EMPTY_UNIFORM = 1 /* the mean of all len_kv values, weights 1/len_kv, as a mask of finite -1e9 gives in Keras and JAX */
} attn_empty;

/*
 * Which keys a query sees.  Key j is visible to query i of batch entry b iff all of these hold:
 *
 *      j < lengths_kv[b]  and  i < lengths_q[b]                    where they are there
 *      j <= p_i                                                    if causal
 *      p_i - window_left <= j <= p_i + window_right                if window; a bound of -1 is no bound    } or j < global_kv
 *      (p_i - j) mod dilation = 0                                  if dilation > 1                         } or 0 <= p_i < global_q
 *      floor(j / chunk) = floor(p_i / chunk)                       if chunk > 0
 *      |p_i - j| >= least_distance                                 if least_distance > 0; 1: a query does not see its own key
 *      ranges[b,h,i,0] <= j < ranges[b,h,i,1]                      where it is there
 *      mask[b,h,i,j] != 0                                          where it is there
 *      block_mask[b,h,floor(i/block_q),floor(j/block_kv)] != 0     where it is there
 *      floor(j/block_kv) is in list floor(i/block_q)               where block_starts and block_index are there
 *      bias[b,h,i,j] != -infinity                                  where it is there
 *
 * Global tokens are the first of a sequence: all queries see global_kv keys whatever window and dilation say, and global_q queries
 * see all keys (Beltagy et al. 2020, "Longformer").  The other rules bind them too.  What no query of a tile sees costs nothing,
 * but for a boolean mask, a bias, a least distance and a dilation below the tile's size, which hide keys and save no work.
 * attn/mask.h sets these fields by the names that masks go by.
 *
 * What a query does not see is not read into its result: NaN or Inf there reaches nothing.
 * A query that sees no key gets o = 0, weights 0 and lse = -infinity (the sink, where there is one), unless `empty` says otherwise.
 */
typedef struct attn_mask {
    int causal;
    attn_align align;
    int window; /* 1: window_left and window_right hold */
    attn_empty empty;
    int64_t window_left;
    int64_t window_right;
    int64_t chunk;    /* keys of the same chunk only; 0: no chunks */
    int64_t dilation; /* 0 or 1: every key */
    int64_t global_q;
    int64_t global_kv;
    int64_t block_q; /* queries and keys that one entry of a block mask speaks for */
    int64_t block_kv;
    int64_t block_entries; /* how many numbers block_index has */
    int64_t least_distance;
    int64_t reserved[7];
} attn_mask;

/*
 * Dropout of weights after the softmax: o_i = sum_j keep_ij / (1-p) weights_ij v_j.  keep_ij = word j%4 of Philox4x32-10 with key =
 * attn_call.dropout_seed (low word first) and counter = (attn_call.dropout_offset, b*heads_q + h, i, floor(j/4)), is 2^32 p or
 * more: of these numbers alone (0 without a call), so backward draws the same, on any number of threads.  Or the caller has drawn:
 * where dropout_given is there, keep_ij = dropout_given[b,h,i,j] != 0, and p only scales.  lse and weights are those before
 * dropout; attn_outputs.after_dropout gives weights after it.
 */
typedef struct attn_dropout {
    double probability; /* p, 0 <= p <= 1; p = 1 gives o = 0 */
    int64_t reserved[4];
} attn_dropout;

/*
 * Keys and values in pages, as inference engines keep them: where page_table is there, k is [pages, heads_kv, page_size, dim_qk]
 * and v [pages, heads_kv, page_size, dim_v] (strides of page, head, token, channel), and key j of batch entry b is token j %
 * page_size of page page_table[b, j / page_size].  Entries past a sequence's length are not read.  ATTN_FORWARD only.
 */
typedef struct attn_paging {
    int64_t page_size; /* tokens of a page */
    int64_t pages;     /* in k and v */
    int64_t reserved[4];
} attn_paging;

/*
 * How far a score has come, each stage with what the ones before it did.  The numbers are those of qk_matmul_output_mode of ONNX's
 * Attention, which has the same order.
 */
typedef enum attn_stage {
    ATTN_STAGE_RAW = 0,    /* scale/temperature * q.k, nothing dropped: all keys and queries are read, in pages to a length */
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
 * Choices about outputs of ATTN_FORWARD beside o.  With s_j and weights_j as attn_compute has them, over the keys j that query i
 * sees:
 *
 *      row_max[b,h,i]         = max_j s_j                            -infinity where it sees none
 *      entropy[b,h,i]         = -sum_j weights_j log(weights_j)      in nats; 0 where it sees none
 *      effective_keys[b,h,i]  = exp(entropy[b,h,i])                  0 where it sees none
 *      topk_index[b,h,i,:]    = the `topk` keys of the largest weights, largest first; of equal ones the lowest index first
 *      topk_weight[b,h,i,:]   = their weights                        index -1 and weight 0 past the keys that it sees
 *      column_sum[b,h,j]      = sum_i weights_ij                     what key j receives from the last `column_queries` queries
 *
 * All of these are before dropout.  A sink takes its part of the weight and is no key: the weights are as they are, and need not
 * sum to 1.  A row that sees no key but averages all (ATTN_EMPTY_UNIFORM) counts with these weights, and has row_max -infinity.
 * A row with NaN in its weights has NaN in row_max, entropy, effective_keys and topk_weight, and index -1.
 *
 * They need no memory of size len_q * len_kv and take one product more; column sums take another.  Only weights, scores and
 * dropout_keep have that size, and lie in the caller's memory; attn_call.visit_rows gets the same numbers by row ranges, from a
 * buffer of a few rows for each thread.
 */
typedef struct attn_outputs {
    int after_dropout; /* 1: weights, and scores and rows of ATTN_STAGE_WEIGHTS, are those after dropout: times keep_ij/(1-p) */
    attn_stage scores_stage; /* of the tensor scores */
    attn_stage rows_stage;   /* of attn_call.visit_rows */
    attn_columns column_heads;
    int64_t column_queries; /* how many of each sequence's last queries; 0: all */
    int64_t topk;           /* keys for each query; with topk_index or topk_weight */
    int64_t reserved[8];
} attn_outputs;

/*
 * One attention, without its data.
 *
 * ATTN_JVP: how o and lse change as q, k, v and bias move along tangents (dots).  Inputs beside these are o and lse, as forward
 * left them, so any number of tangents follow one forward.  Equals, with x_ij = scale * q_i.k_j before the softcap f (or f(x) = x),
 * and keep_ij the factor of dropout (0 or 1/(1-p); else 1),
 *
 *      s'_ij      = f'(x_ij) * scale * (q'_i.k_j + q_i.k'_j) + bias'_ij
 *      tan_lse_i  = sum_j weights_ij s'_ij
 *      tan_o_i    = sum_j keep_ij weights_ij ((s'_ij - tan_lse_i) v_j + v'_j)
 *
 * in one walk over the keys, in memory that grows with n.  A row without keys has tangent 0; an ATTN_EMPTY_UNIFORM one the mean of
 * v'.  Masks hold, and dropout draws the same weights, as in forward.  A tangent that is not there counts as 0.
 *
 * ATTN_DOUBLE_BACKWARD: the gradient of what ATTN_BACKWARD computes.  What flows back into grad_q, grad_k, grad_v and grad_bias
 * comes as tan_q, tan_k, tan_v and tan_bias (not there: 0), since the number that is differentiated,
 *
 *      <grad_q, tan_q> + <grad_k, tan_k> + <grad_v, tan_v> + <grad_bias, tan_bias> = <grad_o, tan_o> + <grad_lse, tan_lse>,
 *
 * is also the inner product of forward mode: so this is its Hessian-vector product too.  With s', x, f and keep as above, and x'
 * what f' multiplies in s',
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
 * in two walks over the keys, in memory that grows with n.  Nothing flows back into the gradients of slopes, sinks and scale.
 */
typedef struct attn_problem {
    size_t struct_size; /* sizeof(attn_problem) */
    attn_op op;
    attn_shape shape;
    attn_score score;
    attn_mask mask;
    attn_dropout dropout;
    attn_outputs outputs;
    attn_paging paging;
    attn_bias_table bias_table; /* attn/relative.h */
    attn_relative relative;     /* attn/relative.h */
} attn_problem;

/* ---- what changes from call to call and is no tensor ------------------------------------------------------------ */

/*
 * Where a part of a larger problem lies in it, so that a call over the part computes exactly what the whole call computes there:
 * query i, key j, head h and batch entry b of the part are query q + i, key kv + j, head head + h, entry batch + b of the whole
 * in every rule of attn_mask, in distances and slopes, in dropout's counters and in attn_score_tile.  `heads` is the whole's
 * heads_q, for those counters.  Tensors are those of the part (a block mask has whole blocks, from its first query and key
 * on), and lengths: ATTN_ALIGN_BOTTOM_RIGHT is rejected, and offset_q takes its place; numbers in `ranges` are keys of the whole.
 */
typedef struct attn_origin {
    int64_t batch;
    int64_t head;
    int64_t heads; /* 0: attn_shape.heads_q, where head is 0 */
    int64_t q, kv;
    int64_t reserved[3];
} attn_origin;

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

/* As with tensors: a function or an origin that is there is used, and a plan that was made with one is executed with one. */
typedef struct attn_call {
    size_t struct_size; /* sizeof(attn_call) */
    uint64_t dropout_seed;
    uint32_t dropout_offset;
    uint32_t reserved;         /* must be 0 */
    const attn_origin *origin; /* NULL: the call is the whole problem */
    attn_visit_rows *visit_rows;
    void *visit_context;
    attn_modify_tile *modify_scores; /* attn/modifier.h */
    attn_modify_tile *modify_slopes; /* ATTN_BACKWARD and ATTN_JVP, with modify_scores */
    void *modify_context;
} attn_call;

/* ---- the tensors ------------------------------------------------------------------------------------------------ */

/*
 * One slot a tensor; its shape stands beside it, in the sizes of attn_shape: B batch, Hq heads_q, Hkv heads_kv, Sq len_q, Skv
 * len_kv, D dim_qk, Dk attn_score.dim_k or D, Dv dim_v.  Shapes with fewer than four axes fill them as the four in brackets say.
 *
 * Types: q is f32, f64, f16 or bf16; k, v and o are f32, f16 and bf16 in any mixture, or f64 where q is, and by default q's.  k and
 * v may be i8 (ATTN_FORWARD): a key is then k_scale[b,g,j] * stored[b,g,j,c], exactly, and the error that of f32 keys.  The
 * compute type is f64 where q is f64, else f32; every result is rounded once, on store.  lse, row_max, entropy, effective_keys,
 * column_sum, topk_weight, scale, alibi_slopes, sink, relative_u and relative_v are of the compute type.  bias and tables are of
 * any float type, by default the compute type; masks are bool or u8, 1 = keep; index arrays are i64 or i32.
 *
 * Strides: of q, k, v, o, their derivatives, weights, scores and topk the last must be 1; arrays marked dense are dense.
 * alibi_slopes, by default, are those of all batch entries, and score_matrix that of all heads: these two broadcast on that axis
 * unless their strides say otherwise.  A bias table or relative table that all heads share has stride[1] = 0 beside others that
 * are not.  The gradient of a tensor that broadcasts is summed over that axis and has size 1 there.
 *
 * Packed sequences: where cu_seqlens_q and cu_seqlens_kv are there, sequences of different lengths lie one after the other.  q, o
 * and lse are [1, Hq, total queries, ...], k and v [1, Hkv, total keys, ...], dense meaning [token, head, channel] (the stride of b
 * is not used); batch entry b owns the tokens cu_seqlens_q[b] .. cu_seqlens_q[b+1]-1 and cu_seqlens_kv[b] .. cu_seqlens_kv[b+1]-1.
 * len_q and len_kv are the longest of them.  Tensors with both Sq and Skv keep their axis b.  column_sum lies like k, the
 * other outputs by query like lse.
 *
 * attn_tensor_describe has this table for programs.
 */
typedef struct attn_tensors {
    size_t struct_size;    /* sizeof(attn_tensors) */
    const attn_call *call; /* NULL, or what else changes from call to call */

    /* What is attended: all three are needed, and o. */
    attn_input q;        /* [B, Hq, Sq, D] */
    attn_input k;        /* [B, Hkv, Skv, Dk], or in pages */
    attn_input v;        /* [B, Hkv, Skv, Dv], or in pages */
    attn_output o;       /* [B, Hq, Sq, Dv]: written by ATTN_FORWARD, read by the others (attn_saved) */
    attn_output lse;     /* [B, Hq, Sq, 1]: likewise */
    attn_output weights; /* [B, Hq, Sq, Skv]: ATTN_FORWARD */

    /* Who sees what (attn_mask), and where sequences begin and end. */
    attn_input mask;          /* [B, Hq, Sq, Skv] */
    attn_input bias;          /* [B, Hq, Sq, Skv]: added to the scores; -infinity drops the key, any finite value is a number */
    attn_input lengths_q;     /* [B] [B,1,1,1], dense: real queries of each batch entry, 0 .. Sq; rows past them are 0 */
    attn_input lengths_kv;    /* [B], dense: 0 .. Skv; keys past them are not read */
    attn_input cu_seqlens_q;  /* [B + 1], dense: the first 0, never falling; with cu_seqlens_kv, without lengths */
    attn_input cu_seqlens_kv; /* [B + 1], dense */
    attn_input offset_q;      /* [B], dense: where query 0 of each batch entry stands among the keys, within +-2^60 */
    attn_input ranges;        /* [B, Hq, Sq, 2]: the first key that a query may see, and the one after the last; any numbers */
    attn_input block_mask;    /* [B, Hq, ceil(Sq/block_q), ceil(Skv/block_kv)] */
    attn_input block_starts;  /* [ceil(Sq/block_q) + 1], dense: from 0, where each list starts, for all heads and entries alike */
    attn_input block_index;   /* [block_entries], dense: the lists: blocks of keys, rising within a list */
    attn_input page_table;    /* [B, ceil(Skv/page_size)] [B,1,1,..], last axis contiguous: attn_paging */

    /* What else scores are made of. */
    attn_input k_scale;         /* [B, Hkv, Skv, 1], or in pages, of f32: where k is i8 */
    attn_input v_scale;         /* [B, Hkv, Skv, 1], the same */
    attn_input scale;           /* [Hq] [1,Hq,1,1], dense: one scale for each head */
    attn_input score_matrix;    /* [1, Hq, D, Dk], [1, Hq, dim_metric, D], additive [1, Hq, 1 or 2, D] */
    attn_input alibi_slopes;    /* [B, Hq] [B,Hq,1,1]: s_ij -= slope * |p_i - j| (Press et al. 2022) */
    attn_input sink;            /* [Hq], dense: joins each denominator, with no key (gpt-oss; 0 is "softmax off by one") */
    attn_input bias_table;      /* [1, Hq, buckets, 1]: attn_bias_table */
    attn_input relative_keys;   /* [1, Hq, rows, D], channels contiguous: attn_relative */
    attn_input relative_values; /* [1, Hq, rows, Dv], the same */
    attn_input relative_u;      /* [Hq, D] [1,Hq,1,D], dense; with relative_keys */
    attn_input relative_v;      /* [Hq, D], dense; with relative_keys */
    attn_input dropout_given;   /* [B, Hq, Sq, Skv] of bool or u8: attn_dropout */

    /* Outputs of ATTN_FORWARD beside these (attn_outputs). */
    attn_output scores;         /* [B, Hq, Sq, Skv], of scores_stage */
    attn_output dropout_keep;   /* [B, Hq, Sq, Skv] of bool or u8: keep_ij of attn_dropout, 1 or 0, for every pair, seen or not */
    attn_output row_max;        /* [B, Hq, Sq, 1] */
    attn_output entropy;        /* [B, Hq, Sq, 1] */
    attn_output effective_keys; /* [B, Hq, Sq, 1] */
    attn_output column_sum;     /* [B, Hq, Hkv or 1, Skv, 1] */
    attn_output topk_index;     /* [B, Hq, Sq, topk] of i64 or i32 */
    attn_output topk_weight;    /* [B, Hq, Sq, topk] */

    /* ATTN_BACKWARD: q, k, v, o, lse and grad_o are needed, and grad_q, grad_k and grad_v.  Gradients have the shapes and, by
     * default, the types of their tensors. */
    attn_input grad_o;   /* also ATTN_DOUBLE_BACKWARD */
    attn_input grad_lse; /* likewise; not there: 0 */
    attn_output grad_q, grad_k, grad_v;
    attn_output grad_bias;  /* reduced over the axes that bias broadcasts */
    attn_output grad_scale; /* [Hq], dense: of the scale of each head, whatever its kind */
    attn_output grad_score_matrix, grad_alibi_slopes, grad_sink, grad_bias_table; /* those of slopes and of the sink are dense */
    attn_output grad_relative_keys, grad_relative_values, grad_relative_u, grad_relative_v;

    /* ATTN_JVP and ATTN_DOUBLE_BACKWARD: tangents of the shapes of their tensors. */
    attn_input tan_q, tan_k, tan_v, tan_bias;
    attn_output tan_o, tan_lse; /* ATTN_JVP; tan_o is needed */

    /* ATTN_DOUBLE_BACKWARD: all but the last two are needed. */
    attn_output second_grad_o, second_q, second_k, second_v, second_bias, second_grad_lse;
} attn_tensors;

/* ---- options: whose memory, whose threads, which instruction set ---------------------------------------------- */

/* Instruction sets, worst to best; a CPU has those of x86-64 or that of AArch64, and a set of the other is capped to scalar. */
typedef enum attn_isa {
    ATTN_ISA_DEFAULT = 0, /* the best that the CPU has, capped by the environment variable ATTN_ISA (scalar, avx2, avx512, neon) */
    ATTN_ISA_SCALAR = 1,
    ATTN_ISA_AVX2 = 2,   /* with FMA and F16C */
    ATTN_ISA_AVX512 = 3, /* F, BW, DQ, VL */
    ATTN_ISA_NEON = 4    /* Advanced SIMD, which every AArch64 has */
} attn_isa;

/* "scalar", "avx2", "avx512", "neon"; "default" for 0, "unknown" otherwise. */
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
    /* How many may work at once; 0: what ATTN_THREADS (1 to 1024) in the environment says, else OMP_NUM_THREADS (its first number),
     * else as many as there are CPUs that the calling thread may run on. */
    int threads;
    attn_isa isa; /* exactly this one, or an error */
    /* 1: in ATTN_FORWARD a query's bits, of finite numbers, do not depend on chunks of queries either, so prefill equals decode;
     * products of few rows have the order of many.  Takes longer: decode 1.3 times, the rest 1.15 at most (lab/rows/README.md).
     * Column sums are of a call's queries.  Rejected with relative terms, global tokens and block masks, whose sums depend on which
     * queries share a tile. */
    int invariant;
    /* 1: the same bits with AVX2, AVX-512 and NEON, of finite numbers (docs/numerics.md: cost, limits).  Rejected with what
     * invariant is, gradients of additive scores, tables, broadcast biases and heads' numbers, merge's gradient, scalar kernels,
     * linear.h. */
    int reproducible;
    attn_allocator allocator;
    /* NULL: the library's own threads, one pool for the process, made when first used.  A thread that cannot be made, or comes
     * late, is done without, with the same bits; a child made by fork() begins with an empty pool; idle threads sleep
     * (docs/threads.md). */
    attn_parallel_for *parallel_for;
    void *parallel_context;
    /* 0, or the bytes that a workspace may have: what needs more takes less of them and more time, by sums that threads share and
     * then by fewer threads, or is rejected.  No result depends on it.  Of plans; a product needs less than 1 MiB a thread. */
    size_t workspace_limit;
} attn_options;

/* *resolved, which has its struct_size, becomes options (NULL: all 0) with the threads and instruction set that a call would choose
 * now.  Calls with it look at no environment variable, ask the system nothing, and compute the same: for many small ones.  Returns
 * ATTN_ERR_ARGUMENT, or ATTN_ERR_UNSUPPORTED for an instruction set that this CPU has not or that cannot be reproducible. */
ATTN_API attn_status attn_options_resolve(const attn_options *options, attn_options *resolved, attn_error *error);

/* ---- computing ------------------------------------------------------------------------------------------------- */

/*
 * Any operation, in one call: plans, allocates a workspace, runs and frees.  Hold a plan where a shape repeats.
 *
 * ATTN_FORWARD equals, for every b, h and i,
 *
 *      g           = h / (heads_q / heads_kv)
 *      s_j         = scale * sum_c q[b,h,i,c] * k[b,g,j,c] + bias[b,h,i,j]       for every visible j (see attn_mask)
 *      lse[b,h,i]  = log(sum_j exp(s_j))
 *      weights_j   = exp(s_j - lse[b,h,i])
 *      o[b,h,i,:]  = sum_j weights_j * v[b,g,j,:]
 *
 * (Vaswani et al. 2017, equation 1; computed by the online softmax of Milakov and Gimelshein 2018 in tiles, so that nothing
 * of size len_q * len_kv exists unless the weights are requested.)  Exact but for rounding: docs/numerics.md has the bound.
 * The result has the same bits for any number of threads, any batch around a row, and any alignment of the pointers.
 *
 *  problem  [in]  what to compute
 *  tensors  [in]  its tensors
 *
 * Returns ATTN_OK, or, with outputs untouched, what attn_plan_create and attn_execute return.
 */
ATTN_API attn_status attn_compute(const attn_problem *problem, const attn_tensors *tensors, attn_error *error);

/* A problem that was checked, with the kernel, the tiles and the memory it will use.  Immutable: any number of threads may
 * execute one plan at the same time, each with a workspace of its own. */
typedef struct attn_plan attn_plan;

/*
 * Checks a problem and its tensors, chooses a kernel and sizes the workspace.  Of the tensors it looks at presence, types and
 * strides, never at data: ATTN_LATER stands for a pointer that is not known yet.  Of tensors->call likewise: which functions are
 * there, and whether there is an origin.  options may be NULL.  Allocates one block, by options->allocator; all structs are
 * copied and need not outlive the call.
 *
 * On failure *plan is NULL.  Returns
 *      ATTN_ERR_ARGUMENT     NULL, struct_size too small, unknown enum value, a number out of its range, a tensor that is missing,
 *                            of no use, or excluded by another one
 *      ATTN_ERR_SHAPE        negative sizes, a shape of zeros, heads_q not a multiple of heads_kv, an overflowing product
 *      ATTN_ERR_STRIDE       last axis not contiguous, an output that overlaps itself
 *      ATTN_ERR_UNSUPPORTED  mixed f64 and other storage, an instruction set that this CPU or build lacks
 *      ATTN_ERR_MEMORY       the allocator returned NULL; options->workspace_limit is too small (the message says what is needed)
 */
ATTN_API attn_status attn_plan_create(attn_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
                                      const attn_options *options, attn_error *error);

/*
 * Bytes of workspace that attn_execute needs; 0 is possible.  Grows with threads, head sizes and, for some outputs, len_q or
 * len_kv; never with len_q * len_kv.  ATTN_BACKWARD and ATTN_DOUBLE_BACKWARD sum in the caller's tensors of k and v where these
 * have the compute type, rows one after the other, and channels that fill vectors (multiples of 16 always do); else the sums take
 * at most (dim_qk + dim_v, rounded up to multiples of 16) * len_kv numbers of it, 4 bytes or in f64 8, for each key head.
 */
ATTN_API size_t attn_plan_workspace_size(const attn_plan *plan);

/*
 * Runs a plan.  Allocates nothing.  tensors are there, of the types and with the strides that the plan was made with (all four
 * strides 0 and the same strides written out are one); workspace has workspace_size >= attn_plan_workspace_size(plan) bytes of any
 * alignment, which no tensor and no concurrent call shares, and holds nothing of use afterwards.  Returns, with outputs untouched,
 *      ATTN_ERR_ARGUMENT     a tensor or part of the call that was planned and is not there, or the reverse; ATTN_LATER; another
 *                            type; a pointer not aligned to its elements; a length, page, list or origin out of its range
 *      ATTN_ERR_STRIDE       other strides; an output that shares elements with another tensor, or strides too intricate to
 *                            decide that; a packed output that overlaps itself, by the tokens that cu_seqlens says there are
 *      ATTN_ERR_SHAPE        a packed tensor of more elements than 64-bit addresses hold
 *      ATTN_ERR_MEMORY       workspace too small
 */
ATTN_API attn_status attn_execute(const attn_plan *plan, const attn_tensors *tensors, void *workspace, size_t workspace_size,
                                  attn_error *error);

/* Frees a plan; NULL is a no-op. */
ATTN_API void attn_plan_destroy(attn_plan *plan);

/* ---- asking: tensors ------------------------------------------------------------------------------------------- */

/* Which struct of tensors: each family has a problem, tensors of its own, and this one grammar. */
typedef enum attn_family {
    ATTN_FAMILY_ATTENTION = 0, /* attn_problem, attn_tensors */
    ATTN_FAMILY_LINEAR = 1     /* attn_linear_problem, attn_linear_tensors (attn/linear.h) */
} attn_family;

/* What an operation does with a tensor; ATTN_ROLE_NONE: nothing, and it is an error where it is there. */
typedef enum attn_role { ATTN_ROLE_NONE = 0, ATTN_ROLE_INPUT = 1, ATTN_ROLE_OUTPUT = 2 } attn_role;

/* Whether it has to be there.  What depends on other choices counts as optional. */
typedef enum attn_need { ATTN_NEED_NEVER = 0, ATTN_NEED_OPTIONAL = 1, ATTN_NEED_ALWAYS = 2 } attn_need;

/* What an axis of a tensor counts. */
typedef enum attn_axis {
    ATTN_AXIS_ONE = 0, /* nothing: size 1 */
    ATTN_AXIS_BATCH = 1,
    ATTN_AXIS_HEAD_Q = 2,
    ATTN_AXIS_HEAD_KV = 3,
    ATTN_AXIS_QUERY = 4,
    ATTN_AXIS_KEY = 5,
    ATTN_AXIS_DIM_QK = 6,
    ATTN_AXIS_DIM_K = 7,
    ATTN_AXIS_DIM_V = 8,
    ATTN_AXIS_BLOCK_Q = 9,
    ATTN_AXIS_BLOCK_KV = 10,
    ATTN_AXIS_PAGE = 11,
    ATTN_AXIS_BUCKET = 12,   /* of a bias table */
    ATTN_AXIS_DISTANCE = 13, /* rows of relative tables */
    ATTN_AXIS_TOPK = 14,
    ATTN_AXIS_FEATURE = 15, /* of linear attention */
    ATTN_AXIS_LIST = 16     /* of its own length: starts, entries, bounds, rows of a matrix */
} attn_axis;

enum { ATTN_OPERATIONS = 4 };      /* ATTN_FORWARD to ATTN_DOUBLE_BACKWARD */
enum { ATTN_MOST_OPERATIONS = 8 }; /* room for those to come */

/* One row of the table of tensors: what holds for every problem of the family. */
typedef struct attn_tensor_description {
    size_t struct_size; /* in: sizeof(attn_tensor_description) */
    const char *name;   /* the slot's: "q", "grad_bias" */
    size_t offset;      /* of the slot in the family's struct of tensors */
    attn_role role[ATTN_MOST_OPERATIONS];
    attn_need need[ATTN_MOST_OPERATIONS];
    attn_axis axes[4];
    unsigned types;  /* sum of 1 << attn_dtype: those that some problem allows */
    int gradient_of; /* index of the tensor whose gradient (grad_, second_) or tangent (tan_) this is; -1: of none */
    int may_alias;   /* index of the input whose memory this output may be; -1: none */
    int since;       /* the version that has it first, 10000 * MAJOR + 100 * MINOR + PATCH */
} attn_tensor_description;

/* Describes tensor number `index` (0, 1, ...) of a family.  ATTN_ERR_ARGUMENT past the last one. */
ATTN_API attn_status attn_tensor_describe(attn_family family, int index, attn_tensor_description *description, attn_error *error);

/* What a plan says of a tensor: enough to allocate it. */
typedef struct attn_tensor_plan {
    size_t struct_size; /* in: sizeof(attn_tensor_plan) */
    attn_role role;     /* ATTN_ROLE_NONE: the plan has none, and what follows is 0 */
    attn_dtype dtype;
    int64_t shape[4];
    int64_t stride[4];
    int64_t bytes; /* from the lowest to the end of the highest element; packed: of one sequence of the greatest length */
} attn_tensor_plan;

/* Tensor number `index` of attn_tensor_describe(ATTN_FAMILY_ATTENTION).  ATTN_ERR_ARGUMENT past the last one. */
ATTN_API attn_status attn_plan_tensor(const attn_plan *plan, int index, attn_tensor_plan *tensor, attn_error *error);

/* ---- asking: plans, CPUs, kernels ------------------------------------------------------------------------------ */

/*
 * What a plan will do.  A tile is tile_q queries times block_kv keys; counts are over the whole problem at its full lengths
 * (lengths_q, lengths_kv and explicit offsets are known only at execution and count as full and 0), exact up to
 * 2^18 query tiles a head and from a sample of as many beyond.  Texts belong to the plan.
 */
typedef struct attn_plan_description {
    size_t struct_size; /* in: sizeof(attn_plan_description) */
    const char *kernel; /* "attn_fwd_f32_avx2" */
    /* Why this kernel: "best of 3 usable on this CPU", "requested by options.isa", ...; and which walk: "; decode, since ...",
     * "; tiles, since ...", "; options.invariant: walks in the order of tiles", "; each sequence by its length, in 2 walks". */
    const char *why;
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

/* Fills in *description, which has its struct_size.  ATTN_ERR_ARGUMENT: NULL, or a struct_size that cannot be. */
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

/* Fills in *description, which has its struct_size.  ATTN_ERR_ARGUMENT: NULL, a struct_size that cannot be, or an ATTN_THREADS that
 * attn_options rejects. */
ATTN_API attn_status attn_cpu_describe(attn_cpu_description *description, attn_error *error);

typedef struct attn_kernel_description {
    size_t struct_size; /* in: sizeof(attn_kernel_description) */
    const char *name;   /* "attn_fwd_f32_avx2" */
    char needs[96];     /* CPU features: "avx2 fma f16c"; "" for none */
    attn_op op;
    attn_isa isa;
    attn_dtype compute;
    int usable;   /* 1 if this CPU can run it */
    int decode;   /* 1: forward for few queries and many keys, which the plan chooses by itself (attn_plan_description.why) */
    int reserved; /* 0 */
} attn_kernel_description;

/* Describes kernel number `index` (0, 1, ... in order of preference).  ATTN_ERR_ARGUMENT past the last one. */
ATTN_API attn_status attn_kernel_describe(int index, attn_kernel_description *description, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
