/* SPDX-License-Identifier: MIT
 *
 * attn.h - the core of libattn: attention mechanisms on a CPU, in memory linear in the sequence length.
 *
 *      attn_problem p = {.struct_size = sizeof p, .shape = {1, 8, 8, 512, 512, 64, 64}, .mask.causal = 1};
 *      attn_tensors t = {.struct_size = sizeof t, .q = attn_in(q), .k = attn_in(k), .v = attn_in(v), .o = attn_out(o)};
 *      attn_compute(&p, &t, &error);
 *
 * Three levels of interface:
 *
 *      attn_compute                                           one call: plans, runs, frees
 *      attn_plan_create, attn_execute (many), attn_plan_destroy    for a shape that repeats
 *      attn_plan_describe, attn_plan_tensor, attn_tensor_describe, attn_cpu_describe, attn_kernel_describe    introspection
 *
 * attn_problem says what to compute: sizes, choices and numbers.  attn_tensors has one field per tensor: its address, type and
 * strides.  The file is long because it is the manual of the core; separate subjects have headers of their own.
 *
 * Conventions that hold everywhere (docs/conventions.md also has the naming rules):
 *
 *  - Zero is the default of every field but the sizes: start from `= {0}`, set struct_size and what you need.
 *  - A tensor that is present is used: an output is computed, an input takes part.  A slot of zeros means that the tensor is
 *    absent.  Supplying a tensor that the problem does not use is an error, and the message names it; so are two that exclude
 *    each other.
 *  - Inputs are borrowed for the call and never written.  Outputs are written in full, padding rows too; on any error they are left
 *    untouched.  Outputs share elements with no input and no other output, checked element by element: dQ, dK and dV in one [batch,
 *    token, 3, head, channel] buffer are fine.
 *  - The library cannot check that memory is as large as shapes and strides imply; that is up to the caller.
 *  - Functions that can fail return an attn_status and fill an optional attn_error (NULL is allowed).
 *  - Sizes and strides are int64_t; strides count elements, not bytes.  A size of a problem is at most 2^48, also where another is
 *    0 and tensors have no elements.
 *  - struct_size is sizeof the struct that the caller was compiled with.  From 1.0 on, a newer library reads the fields that it
 *    does not find as zeros; before, it rejects a struct shorter than its own.  An older library rejects a field that it does
 *    not know, unless it is zero.  Reserved words must be 0.
 *  - The library never aborts, exits or prints (except one line per plan to stderr if the environment has ATTN_VERBOSE=1), and has
 *    no mutable global state except its thread pool and the CPU features and caches it detected.  Planning reads ATTN_ISA,
 *    ATTN_THREADS and OMP_NUM_THREADS (attn_options).
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
    ATTN_LINEAR = 4,          /* marks kernels of attn/linear.h in attn_kernel_describe; not an operation of attn_problem */
    ATTN_PRODUCT = 5          /* likewise those of attn/product.h */
} attn_op;

/*
 * The sizes that make up the shapes of all tensors.  Query head h reads key and value head h / (heads_q / heads_kv), so heads_q
 * must be a multiple of heads_kv.  Any size may be 0 (the output is then empty or zeros), but not all seven.  len_q and len_kv are
 * the sizes of the tensors; shorter sequences within them are given by the tensors lengths_q and lengths_kv.
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
 * The score of a query and a key, s_ij = scale * x_ij.  All kinds support every mask, bias, output and gradient of ATTN_FORWARD and
 * ATTN_BACKWARD; the other operations are for dot products only.  docs/mechanisms/ has a page for each kind.
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
 * How the scores s_j of the keys that a query sees become weights; o = sum_j weights_j v_j in all cases.  lse is the logarithm of
 * the divisor, and -infinity for a query that sees no key, whose weights are 0.
 *
 * The last two are elementwise: each weight is a function of its own score.  They are for ATTN_FORWARD and ATTN_BACKWARD, and
 * combine with everything but sinks, ATTN_EMPTY_UNIFORM, entropy, effective_keys, topk and a gradient through lse, which make sense
 * only for a softmax.
 */
typedef enum attn_normaliser {
    ATTN_NORMALISER_SOFTMAX = 0,     /* exp(s_j) / sum_k exp(s_k), with the sink if present */
    ATTN_NORMALISER_SOFTMAX_ONE = 1, /* exp(s_j) / (1 + sum_k exp(s_k)): the same as a sink of 0 in each head (Miller 2023) */
    ATTN_NORMALISER_SIGMOID = 2,     /* 1 / (1 + exp(-s_j - shift)) (Ramapuram et al. 2024; there shift = -log len_kv) */
    ATTN_NORMALISER_RELU = 3         /* max(s_j, 0) / (keys that the query sees) (Wortsman et al. 2023) */
} attn_normaliser;

/*
 * The order of operations: s = scale x; s /= temperature; s = softcap * tanh(s / softcap); the caller's modifier; biases (additive,
 * ALiBi, by distance); masks; the normaliser.
 *
 * score_matrix, of ATTN_SCORE_GENERAL, ATTN_SCORE_METRIC and ATTN_SCORE_ADDITIVE, is w above.  All kinds but the dot product
 * transform the queries, cosine and distance also the keys, once per call, in memory of the size of these tensors; additive scores
 * do so tile by tile, in memory that does not grow with the lengths.
 *
 * Additive: q and k are the caller's queries and keys after projection (before it, their channel counts may differ), and dim_qk is
 * the hidden size.  w is one row, the weights; with additive_bias a second row has the biases b.  The gradient has the same layout.
 */
typedef struct attn_score {
    attn_score_kind kind;
    attn_scale_kind scale_kind;
    double scale;
    double temperature; /* > 0; the default 0 means 1.  It, its reciprocal and scale / temperature are finite in the compute type */
    double softcap;     /* > 0; the default 0 means none */
    int64_t dim_k;      /* general: channels of a key; 0: dim_qk, the channels of a query.  Must be 0 for other kinds */
    int64_t dim_metric; /* metric: rows of w; 0: dim_qk.  Must be 0 for other kinds */
    int additive_bias;  /* additive: 1: score_matrix has a second row, the biases */
    attn_normaliser normaliser;
    double shift; /* of the sigmoid; pass a learned shift as a bias that broadcasts */
    int64_t reserved[8];
} attn_score;

/* The absolute position of query i among the keys: p_i = i + offset_b. */
typedef enum attn_align {
    ATTN_ALIGN_TOP_LEFT = 0,    /* offset_b = 0, or the tensor offset_q: the first query has the position of the first key */
    ATTN_ALIGN_BOTTOM_RIGHT = 1 /* offset_b = lengths_kv[b] - lengths_q[b]: the last query has the position of the last key */
} attn_align;

/* The result of a query that sees no key. */
typedef enum attn_empty {
    ATTN_EMPTY_ZERO = 0,   /* o = 0, weights 0 */
    ATTN_EMPTY_UNIFORM = 1 /* the mean of all len_kv values, weights 1/len_kv, as a mask of finite -1e9 gives in Keras and JAX */
} attn_empty;

/*
 * Which keys a query sees.  Key j is visible to query i of batch entry b iff all of these hold:
 *
 *      j < lengths_kv[b]  and  i < lengths_q[b]                    if present
 *      j <= p_i                                                    if causal
 *      p_i - window_left <= j <= p_i + window_right                if window; -1 means no bound
 *          and (p_i - j) mod dilation = 0                          if dilation > 1
 *          or (global) j < global_kv or 0 <= p_i < global_q        which stands in for these two rules
 *      floor(j / chunk) = floor(p_i / chunk)                       if chunk > 0
 *      |p_i - j| >= least_distance                                 if least_distance > 0; 1: a query does not see its own key
 *      ranges[b,h,i,0] <= j < ranges[b,h,i,1]                      if present
 *      mask[b,h,i,j] != 0                                          if present
 *      block_mask[b,h,floor(i/block_q),floor(j/block_kv)] != 0     if present
 *      floor(j/block_kv) is in list floor(i/block_q)               if block_starts and block_index are present (block_heads: in
 *                                  list (b heads_kv + g) ceil(len_q/block_q) + floor(i/block_q))
 *      j < n - tree_keys, or bit j - n + tree_keys of tree[b,i] is 1   if present; the sequence has n keys
 *      bias[b,h,i,j] != -infinity                                  if present
 *
 * Global tokens are the first of a sequence: all queries see the first global_kv keys and the first global_q queries see all keys,
 * whatever window and dilation are (Beltagy et al. 2020, "Longformer").  The other rules still apply to them.  Keys that no query
 * of a tile sees cost nothing, except that a boolean mask, a bias, a least distance and a dilation below the tile size hide keys
 * without saving work.  attn/mask.h sets these fields for masks with well-known names.
 *
 * A tree of drafts (speculative decoding) sees all of its sequence and, of the last tree_keys keys, which are the drafts', its own
 * ancestors: bit 0 of word 0 is the first of these keys, bit k % 64 of word k / 64 the k-th; bits of keys before the first one and
 * past the last are ignored.  Sequences without drafts in the same batch have words of ones (-1).  Positions, and with them causal
 * masks and distances, are those of the keys in the cache, not depths in the tree.
 *
 * Lists of each key head (block_heads) choose what few queries read, as in Quest or NSA, whose keys are in blocks, or DSA, whose
 * keys are chosen one by one (block_kv = 1): attn/choose.h makes them.  Positions, lengths and pages are those of all keys.  If
 * block_q >= len_q, a key head has one list, only its keys are read, and the walks go over them as over a sequence of only these:
 * their sums are cut accordingly.  ATTN_FORWARD only.
 *
 * Keys that a query does not see have no effect on its result, even if they hold NaN or Inf.  A query that sees no key gets o = 0,
 * weights 0 and lse = -infinity (the sink, if there is one), unless `empty` is set.
 */
typedef struct attn_mask {
    int causal;
    attn_align align;
    int window; /* 1: window_left and window_right apply */
    attn_empty empty;
    int64_t window_left;
    int64_t window_right;
    int64_t chunk;    /* keys of the same chunk only; 0: no chunks */
    int64_t dilation; /* 0 or 1: every key */
    int64_t global_q;
    int64_t global_kv;
    int64_t block_q; /* queries and keys per entry of a block mask or list */
    int64_t block_kv;
    int64_t block_entries; /* number of entries of block_index */
    int64_t least_distance;
    int64_t tree_keys;   /* how many of the last keys of a sequence `tree` has bits for */
    int64_t block_heads; /* 1: block_starts and block_index have lists for each batch entry and key head; 0: they are for all */
    int64_t reserved[5];
} attn_mask;

/*
 * Dropout of weights after the softmax: o_i = sum_j keep_ij / (1-p) weights_ij v_j.  keep_ij = word j%4 of Philox4x32-10 with key =
 * attn_call.dropout_seed (low word first) and counter = (attn_call.dropout_offset, b*heads_q + h, i, floor(j/4)), is at least 2^32
 * p.  It depends on these numbers alone (seed and offset are 0 without a call), so backward draws the same mask, on any number of
 * threads.  Or the caller draws: if dropout_given is present, keep_ij = dropout_given[b,h,i,j] != 0, and p only scales.  lse and
 * weights are taken before dropout; with attn_outputs.after_dropout, weights after it.
 */
typedef struct attn_dropout {
    double probability; /* p, 0 <= p <= 1; p = 1 gives o = 0 */
    int64_t reserved[4];
} attn_dropout;

/*
 * Paged keys and values, as in inference engines: k is [pages, heads_kv, page_size, dim_qk] and v [pages, heads_kv, page_size,
 * dim_v] (strides of page, head, token, channel: pages of [token, head, channel], or K and V in one tensor, are strides too).  Key
 * j of batch entry b is token j % page_size of page
 *
 *      page_table[b, j / page_size]                        if page_table is present: a row for each entry
 *      page_index[page_starts[b] + j / page_size]          if page_index is present: lists of page_starts[b+1] - page_starts[b]
 *
 * Entries past a sequence's length are not read, nor are those of pages that lie behind the window or chunk of all of its queries
 * (unless there are global tokens, ranges, trees, lists of blocks, uniform empty rows, or outputs of all keys: weights, scores,
 * column sums, raw and capped rows), so that an engine can free these pages; their entries may be anything.  The length is
 * lengths_kv[b]; or, with lists, (pages of b - 1) * page_size + lengths_last_page[b], and 0 without pages; or len_kv.  ATTN_FORWARD
 * only.
 */
typedef struct attn_paging {
    int64_t page_size;    /* tokens per page */
    int64_t pages;        /* in k and v */
    int64_t page_entries; /* in page_index */
    int64_t reserved[3];
} attn_paging;

/*
 * The stages of a score; each includes the ones before it.  The numbers are those of qk_matmul_output_mode of ONNX's Attention,
 * which has the same order.
 */
typedef enum attn_stage {
    ATTN_STAGE_RAW = 0,    /* scale/temperature * q.k, nothing masked: reads all queries and keys, in pages up to the length */
    ATTN_STAGE_CAPPED = 1, /* softcap */
    ATTN_STAGE_BIASED = 2, /* bias, ALiBi, and -infinity for each key that the query does not see */
    ATTN_STAGE_WEIGHTS = 3 /* softmax */
} attn_stage;

/* Which heads share a column sum. */
typedef enum attn_columns {
    ATTN_COLUMNS_EACH = 0,  /* none: heads_q sums */
    ATTN_COLUMNS_GROUP = 1, /* the query heads of one key head: heads_kv sums, as cache eviction needs them */
    ATTN_COLUMNS_ALL = 2    /* all: one sum */
} attn_columns;

/*
 * Options for the outputs of ATTN_FORWARD other than o.  With s_j and weights_j as in attn_compute, over the keys j that query i
 * sees:
 *
 *      row_max[b,h,i]         = max_j s_j                            -infinity if it sees none
 *      entropy[b,h,i]         = -sum_j weights_j log(weights_j)      in nats; 0 if it sees none
 *      effective_keys[b,h,i]  = exp(entropy[b,h,i])                  0 if it sees none
 *      topk_index[b,h,i,:]    = the `topk` keys of the largest weights, largest first; ties: lowest index first
 *      topk_weight[b,h,i,:]   = their weights                        index -1 and weight 0 beyond the keys it sees
 *      column_sum[b,h,j]      = sum_i weights_ij                     weight that key j gets from the last `column_queries` queries
 *
 * All of these are before dropout.  A sink takes a share of the weight but is not a key: the weights are used as they are and need
 * not sum to 1.  A row that sees no key but averages all (ATTN_EMPTY_UNIFORM) counts with its uniform weights, and has row_max
 * -infinity.  A row with NaN among its weights has NaN in row_max, entropy, effective_keys and topk_weight, and index -1.
 *
 * They need no memory of size len_q * len_kv and cost one more matrix product; column sums cost another.  Only weights, scores and
 * dropout_keep have that size, in the caller's memory; attn_call.visit_rows receives the same numbers in ranges of rows, from a
 * buffer of a few rows per thread.
 */
typedef struct attn_outputs {
    int after_dropout; /* 1: weights, and scores and rows of ATTN_STAGE_WEIGHTS, are taken after dropout: times keep_ij/(1-p) */
    attn_stage scores_stage; /* of the tensor scores */
    attn_stage rows_stage;   /* of attn_call.visit_rows */
    attn_columns column_heads;
    int64_t column_queries; /* how many of the last queries of each sequence; 0: all */
    int64_t topk;           /* keys per query; with topk_index or topk_weight */
    int64_t reserved[8];
} attn_outputs;

/*
 * One attention problem, without its data.
 *
 * ATTN_JVP: how o and lse change as q, k, v and bias move along tangents (primes).  o and lse are inputs too, as forward wrote
 * them, so one forward serves any number of tangents.  Equals, with x_ij = scale * q_i.k_j before the softcap f (or f(x) = x), and
 * keep_ij the factor of dropout (0 or 1/(1-p); 1 without dropout),
 *
 *      s'_ij      = f'(x_ij) * scale * (q'_i.k_j + q_i.k'_j) + bias'_ij
 *      tan_lse_i  = sum_j weights_ij s'_ij
 *      tan_o_i    = sum_j keep_ij weights_ij ((s'_ij - tan_lse_i) v_j + v'_j)
 *
 * in one pass over the keys, in memory linear in n.  A row that sees no key has tangent 0, or with ATTN_EMPTY_UNIFORM the mean of
 * v'.  Masks apply, and dropout drops the same weights, as in forward.  An absent tangent counts as 0.
 *
 * ATTN_DOUBLE_BACKWARD: the gradient of ATTN_BACKWARD.  The gradients with respect to grad_q, grad_k, grad_v and grad_bias are
 * passed as tan_q, tan_k, tan_v and tan_bias (absent: 0), since the scalar that is differentiated,
 *
 *      <grad_q, tan_q> + <grad_k, tan_k> + <grad_v, tan_v> + <grad_bias, tan_bias> = <grad_o, tan_o> + <grad_lse, tan_lse>,
 *
 * is also the inner product of forward mode: so this is the Hessian-vector product too.  With s', x, f and keep as above, and x'
 * the factor of f' in s',
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
 * in two passes over the keys, in memory linear in n.  The gradients of slopes, sinks and scale are not differentiated.
 *
 * With tan_o and tan_lse, as ATTN_JVP has written them, there is no first pass, and neither second_grad_o nor second_grad_lse.  As
 * with o and lse, they may be those over more keys than the call has: the results are then what these keys contribute, and their
 * sums over parts of the keys (second_q) and of the queries (second_k, second_v) are those of the whole.
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

/* ---- what changes from call to call and is not a tensor --------------------------------------------------------- */

/*
 * The place of a part within a larger problem, so that a call over the part computes exactly what a call over the whole computes
 * there: query i, key j, head h and batch entry b of the part are query q + i, key kv + j, head head + h, entry batch + b of the
 * whole in every rule of attn_mask, in distances and slopes, in dropout's counters and in attn_score_tile.  `heads` is heads_q of
 * the whole, for those counters.  Tensors and lengths are those of the part (a block mask has whole blocks, starting at the part's
 * first query and key), so ATTN_ALIGN_BOTTOM_RIGHT is rejected: use offset_q instead.  The numbers in `ranges` are keys of the
 * whole.
 */
typedef struct attn_origin {
    int64_t batch;
    int64_t head;
    int64_t heads; /* 0: attn_shape.heads_q, allowed if head is 0 */
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
 * A callback that receives weights or scores that are never stored as a whole.  Each row of each head is passed in exactly one
 * call.  The calls come from the computing threads, several at once and in any order; how rows are grouped depends on the kernel,
 * their numbers do not.
 */
typedef void attn_visit_rows(void *context, const attn_rows *rows);

/* As with tensors, a function or an origin that is present is used, and a plan made with one must be executed with one. */
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
    const struct attn_schedule *schedule; /* NULL, or what this step's lengths lead to (attn/schedule.h); any plan may have one */
} attn_call;

/* ---- the tensors ------------------------------------------------------------------------------------------------ */

/*
 * One slot per tensor, with its shape beside it in the sizes of attn_shape: B batch, Hq heads_q, Hkv heads_kv, Sq len_q, Skv
 * len_kv, D dim_qk, Dk attn_score.dim_k or D, Dv dim_v.  g is the key and value head of a query head, h / (Hq / Hkv).  Where a
 * shape has fewer than four axes, a second pair of brackets shows how it fills them.
 *
 * Types: q is f32, f64, f16 or bf16; k, v and o are f32, f16 and bf16 in any mixture, or f64 where q is, and by default q's.  k and
 * v may each be i8, f8 or blocks too (ATTN_FORWARD).  A key of i8 or f8 is k_scale[b,g,j] * stored[b,g,j,c], exactly, and the error
 * bound is that of f32 keys; i8 needs k_scale (v_scale), and f8 without it has the scale 1.  Where v is k (its memory, type and
 * strides, as with latents), k_scale alone is an error: v_scale is k_scale, or scales of its own.  A scale of the whole tensor or
 * of each head is one whose other strides are 0.  Blocks (attn_dtype) have no other scales; D (Dv) is a multiple of ATTN_BLOCK.
 *
 * k of q4_1c has its channels in blocks of ATTN_BLOCK keys, and comes with k_tail.  Of a sequence of n keys, the last n %
 * ATTN_BLOCK are exact: key j is row j % ATTN_TAIL of k_tail[b,g], and k is not read there, nor k_tail elsewhere.  Pages have a
 * multiple of ATTN_BLOCK tokens.  Not for v, nor keys packed by cu_seqlens_kv, nor where scores are cosines or distances.
 *
 * The compute type is f64 where q is f64, else f32; every result is rounded once, on store.  lse, row_max, entropy, effective_keys,
 * column_sum, topk_weight, scale, alibi_slopes, sink, relative_u and relative_v are of the compute type.  bias and tables are of
 * any float type, by default the compute type; masks are bool or u8, 1 = keep; index arrays are i64 or i32.
 *
 * Strides: the last stride of q, k, v, o, their derivatives, weights, scores and topk must be 1; arrays marked dense must be dense.
 * By default alibi_slopes are shared by all batch entries and score_matrix by all heads: these two broadcast on that axis unless
 * their strides are given.  A bias table or relative table that all heads share has stride[1] = 0 and some other stride that is not
 * 0.  The gradient of a tensor that broadcasts is summed over that axis and has size 1 there.
 *
 * Packed sequences: if cu_seqlens_q and cu_seqlens_kv are present, sequences of different lengths are concatenated.  q, o and lse
 * are [1, Hq, total queries, ...], k and v [1, Hkv, total keys, ...], dense meaning [token, head, channel] (the stride of b is not
 * used); batch entry b owns the tokens cu_seqlens_q[b] .. cu_seqlens_q[b+1]-1 and cu_seqlens_kv[b] .. cu_seqlens_kv[b+1]-1.  len_q
 * and len_kv are the longest of them.  Tensors with both Sq and Skv keep their axis b, as do ranges and block_mask.  column_sum is
 * laid out like k, the other per-query outputs like lse.
 *
 * A ragged batch, as inference engines have it: cu_seqlens_q alone (ATTN_FORWARD).  Queries are packed, and keys are those of
 * caches [B, Hkv, Skv, ...] or of pages, up to lengths_kv: sequences of any lengths, some of them with one query and some with
 * many, in one call.  len_q is the most queries of a sequence; with attn/schedule.h, bounds that are not reached cost nothing.
 *
 * attn_tensor_describe returns this table to programs.
 */
typedef struct attn_tensors {
    size_t struct_size;    /* sizeof(attn_tensors) */
    const attn_call *call; /* NULL, or the rest of what changes from call to call */

    /* The attention itself: q, k, v and o are needed. */
    attn_input q;        /* [B, Hq, Sq, D] */
    attn_input k;        /* [B, Hkv, Skv, Dk], or in pages */
    attn_input v;        /* [B, Hkv, Skv, Dv], or in pages */
    attn_output o;       /* [B, Hq, Sq, Dv]: written by ATTN_FORWARD, read by the others (attn_saved) */
    attn_output lse;     /* [B, Hq, Sq, 1]: likewise */
    attn_output weights; /* [B, Hq, Sq, Skv]: ATTN_FORWARD */

    /* Visibility (attn_mask), and where sequences begin and end. */
    attn_input mask;          /* [B, Hq, Sq, Skv] */
    attn_input bias;          /* [B, Hq, Sq, Skv]: added to the scores; -infinity masks the key, finite values never do */
    attn_input lengths_q;     /* [B] [B,1,1,1], dense: real queries of each batch entry, 0 .. Sq; rows past them are 0 */
    attn_input lengths_kv;    /* [B], dense: 0 .. Skv; keys past them are not read */
    attn_input cu_seqlens_q;  /* [B + 1], dense: starts at 0, never decreases; without lengths_q */
    attn_input cu_seqlens_kv; /* [B + 1], dense: with cu_seqlens_q, without lengths_kv and pages */
    attn_input offset_q;      /* [B], dense: position of query 0 of each batch entry among the keys, within +-2^60 */
    attn_input ranges;        /* [B, Hq, Sq, 2]: the first key that a query may see, and one past the last; any numbers */
    attn_input block_mask;    /* [B, Hq, ceil(Sq/block_q), ceil(Skv/block_kv)] */
    attn_input block_starts;  /* [ceil(Sq/block_q) + 1], dense: where each list starts, from 0; for all heads and entries alike,
                               * or with block_heads [B * Hkv * ceil(Sq/block_q) + 1] */
    attn_input block_index;   /* [block_entries], dense: the lists: blocks of keys, ascending within a list */
    attn_input page_table;    /* [B, ceil(Skv/page_size)] [B,1,1,..], last axis contiguous: attn_paging */

    /* Other inputs of the scores. */
    attn_input k_scale;         /* [B, Hkv, Skv, 1], or in pages, of f32: if k is i8, or f8 with scales */
    attn_input v_scale;         /* [B, Hkv, Skv, 1], the same, of v */
    attn_input scale;           /* [Hq] [1,Hq,1,1], dense: one scale per head */
    attn_input score_matrix;    /* [1, Hq, D, Dk], [1, Hq, dim_metric, D], additive [1, Hq, 1 or 2, D] */
    attn_input alibi_slopes;    /* [B, Hq] [B,Hq,1,1]: s_ij -= slope * |p_i - j| (Press et al. 2022) */
    attn_input sink;            /* [Hq], dense: a score in each denominator that has no key (gpt-oss; 0 is "softmax off by one") */
    attn_input bias_table;      /* [1, Hq, buckets, 1]: attn_bias_table */
    attn_input relative_keys;   /* [1, Hq, rows, D], channels contiguous: attn_relative */
    attn_input relative_values; /* [1, Hq, rows, Dv], the same */
    attn_input relative_u;      /* [Hq, D] [1,Hq,1,D], dense; with relative_keys */
    attn_input relative_v;      /* [Hq, D], dense; with relative_keys */
    attn_input dropout_given;   /* [B, Hq, Sq, Skv] of bool or u8: attn_dropout */

    /* Further outputs of ATTN_FORWARD (attn_outputs). */
    attn_output scores;       /* [B, Hq, Sq, Skv], of scores_stage */
    attn_output dropout_keep; /* [B, Hq, Sq, Skv] of bool or u8: keep_ij of attn_dropout, 1 or 0, for every pair, visible or not */
    attn_output row_max;      /* [B, Hq, Sq, 1] */
    attn_output entropy;      /* [B, Hq, Sq, 1] */
    attn_output effective_keys; /* [B, Hq, Sq, 1] */
    attn_output column_sum;     /* [B, H, Skv, 1], H = Hq, Hkv or 1 by column_heads */
    attn_output topk_index;     /* [B, Hq, Sq, topk] of i64 or i32 */
    attn_output topk_weight;    /* [B, Hq, Sq, topk] */

    /* ATTN_BACKWARD: q, k, v, o, lse and grad_o are needed, and grad_q, grad_k and grad_v.  Gradients have the shapes and, by
     * default, the types of their tensors. */
    attn_input grad_o;   /* also ATTN_DOUBLE_BACKWARD */
    attn_input grad_lse; /* likewise; absent: 0 */
    attn_output grad_q, grad_k, grad_v;
    attn_output grad_bias;  /* reduced over the axes that bias broadcasts */
    attn_output grad_scale; /* [Hq], dense: of the scale of each head, for both scale kinds */
    attn_output grad_score_matrix, grad_alibi_slopes, grad_sink, grad_bias_table; /* those of the slopes and the sink are dense */
    attn_output grad_relative_keys, grad_relative_values, grad_relative_u, grad_relative_v;

    /* ATTN_JVP and ATTN_DOUBLE_BACKWARD: tangents, with the shapes of their tensors. */
    attn_input tan_q, tan_k, tan_v, tan_bias;
    attn_output tan_o, tan_lse; /* ATTN_JVP: tan_o is needed.  ATTN_DOUBLE_BACKWARD may read them (attn_saved), both */

    /* ATTN_DOUBLE_BACKWARD: all but the last two are needed, and the first not with tan_o. */
    attn_output second_grad_o, second_q, second_k, second_v, second_bias, second_grad_lse;

    /* Lists of pages in place of page_table: attn_paging. */
    attn_input page_starts;       /* [B + 1], dense: where each entry's list starts, from 0 */
    attn_input page_index;        /* [page_entries], dense: the lists */
    attn_input lengths_last_page; /* [B], dense: tokens in the last page of each list, 1 .. page_size; in place of lengths_kv */

    attn_input tree; /* [B, 1, Sq, ceil(tree_keys / 64)] of u64 or i64, words contiguous, packed as q is: attn_mask */

    attn_input k_tail; /* [B, Hkv, ATTN_TAIL, Dk] of f16, channels contiguous: the last keys, if k is q4_1c */
} attn_tensors;

/* ---- options: whose memory, whose threads, which instruction set ---------------------------------------------- */

/* Instruction sets, slowest first.  A CPU has those of x86-64, that of AArch64 or that of WebAssembly; an ATTN_ISA of another
 * architecture leaves scalar. */
typedef enum attn_isa {
    ATTN_ISA_DEFAULT = 0, /* the best that the CPU has, capped by the environment variable ATTN_ISA (a name of attn_isa_name) */
    ATTN_ISA_SCALAR = 1,
    ATTN_ISA_AVX2 = 2,   /* with FMA and F16C */
    ATTN_ISA_AVX512 = 3, /* F, BW, DQ, VL */
    ATTN_ISA_NEON = 4,   /* Advanced SIMD, which every AArch64 has */
    ATTN_ISA_WASM128 = 5 /* SIMD128 of WebAssembly */
} attn_isa;

/* "scalar", "avx2", "avx512", "neon", "wasm128"; "default" for 0, "unknown" otherwise. */
ATTN_API const char *attn_isa_name(attn_isa isa);

/* Both functions or neither.  allocate returns at least `bytes` bytes aligned to 64, or NULL; release accepts what allocate
 * returned. */
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
    /* How many threads may work at once, 1 to 1024; 0: ATTN_THREADS (1 to 1024) from the environment, else OMP_NUM_THREADS (its
     * first number), else the number of CPUs that the calling thread may run on. */
    int threads;
    attn_isa isa; /* exactly this one, or an error */
    /* 1: in addition, in ATTN_FORWARD, the bits of a query's result, for finite numbers, do not depend on how queries are split
     * into calls, so prefill equals decode; products of few rows sum in the order of products of many.  Slower: decode takes 1.3
     * times as long, everything else at most 1.15 (lab/rows/README.md).  Column sums still cover the queries of one call.  Rejected
     * with relative terms, global tokens, block masks and lists of blocks, whose sums depend on which queries share a tile; not
     * with a single list of each key head (mask.block_heads, block_q >= len_q). */
    int invariant;
    /* 1: the same bits with AVX2, AVX-512 and NEON, for finite numbers (docs/numerics.md: cost, limits).  Rejected with what
     * invariant is rejected with; with gradients of additive scores, tables, broadcast biases, scale, slopes and sinks; by
     * attn_merge_backward and attn/linear.h; and with scalar and wasm128 kernels, which round products before adding them. */
    int reproducible;
    attn_allocator allocator;
    /* NULL: the library's own threads, one pool per process, created on first use.  A call does without threads that cannot be
     * created or come late, with the same bits; a child of fork() starts with an empty pool; idle threads sleep
     * (docs/threads.md). */
    attn_parallel_for *parallel_for;
    void *parallel_context;
    /* 0, or the most bytes that a workspace may have: a plan that would need more trades time for memory, first by sharing
     * accumulators between threads, then by using fewer threads, or is rejected.  No result depends on it.  It is compared with
     * attn_plan_workspace_size, so with what the capacities of a ragged batch need, not with what its schedules will need.  For
     * plans only; a product needs less than 1 MiB per thread. */
    size_t workspace_limit;
} attn_options;

/* Copies options (NULL: all 0) to *resolved, whose struct_size is set, and fills in the threads and instruction set that a call
 * would choose now.  Calls with *resolved read no environment variables, make no system queries, and compute the same: for many
 * small calls.  Returns ATTN_ERR_ARGUMENT, or ATTN_ERR_UNSUPPORTED for an instruction set that this CPU lacks or that cannot be
 * reproducible. */
ATTN_API attn_status attn_options_resolve(const attn_options *options, attn_options *resolved, attn_error *error);

/* ---- computing ------------------------------------------------------------------------------------------------- */

/*
 * Any operation, in one call: plans, allocates a workspace, runs and frees.  For a shape that repeats, keep a plan.
 *
 * ATTN_FORWARD equals, for every b, h and i,
 *
 *      g           = h / (heads_q / heads_kv)
 *      s_j         = scale * sum_c q[b,h,i,c] * k[b,g,j,c] + bias[b,h,i,j]       for every visible j (see attn_mask)
 *      lse[b,h,i]  = log(sum_j exp(s_j))
 *      weights_j   = exp(s_j - lse[b,h,i])
 *      o[b,h,i,:]  = sum_j weights_j * v[b,g,j,:]
 *
 * (Vaswani et al. 2017, equation 1; computed by the online softmax of Milakov and Gimelshein 2018 in tiles, so that nothing of size
 * len_q * len_kv exists unless the weights are requested.)  Exact up to rounding: docs/numerics.md has the bound.  The result has
 * the same bits for any number of threads, whatever else is in the batch, and for any alignment of the pointers.
 *
 *  problem  [in]  what to compute
 *  tensors  [in]  its tensors
 *
 * Returns ATTN_OK, or, with outputs untouched, an error of attn_plan_create or attn_execute.
 */
ATTN_API attn_status attn_compute(const attn_problem *problem, const attn_tensors *tensors, attn_error *error);

/* A checked problem with the kernel, the tiles and the memory it will use.  Immutable: any number of threads may execute one plan
 * at the same time, each with its own workspace. */
typedef struct attn_plan attn_plan;

/*
 * Checks a problem and its tensors, chooses a kernel and sizes the workspace.  Reads the presence, types and strides of the
 * tensors, never their data: ATTN_LATER stands for a pointer that is not known yet.  Likewise it reads which functions
 * tensors->call has, and whether there is an origin.  options may be NULL.  Allocates one block, by options->allocator; all structs
 * are copied and need not outlive the call.
 *
 * On failure *plan is NULL.  Returns
 *      ATTN_ERR_ARGUMENT     NULL, struct_size too small, unknown enum value, a number out of its range, a tensor that is missing,
 *                            has no use, or is excluded by another one
 *      ATTN_ERR_SHAPE        sizes that are negative or above 2^48, a shape of zeros, heads_q not a multiple of heads_kv, an
 *                            overflowing product
 *      ATTN_ERR_STRIDE       last axis not contiguous, an output that overlaps itself
 *      ATTN_ERR_UNSUPPORTED  mixed f64 and other storage, an instruction set that this CPU or build lacks
 *      ATTN_ERR_MEMORY       the allocator returned NULL; options->workspace_limit is too small (the message says what is needed)
 */
ATTN_API attn_status attn_plan_create(attn_plan **plan, const attn_problem *problem, const attn_tensors *tensors,
                                      const attn_options *options, attn_error *error);

/*
 * Bytes of workspace that attn_execute needs; 0 is possible.  Grows with threads, head sizes and, for some outputs, len_q or
 * len_kv; never with len_q * len_kv.  ATTN_BACKWARD and ATTN_DOUBLE_BACKWARD accumulate in the caller's gradients of k and v if
 * these have the compute type, contiguous rows, and channels that fill vectors (multiples of 16 always do); otherwise the sums take
 * at most (dim_qk + dim_v, each rounded up to a multiple of 16) * len_kv numbers of the workspace, 4 bytes each or 8 in f64, for
 * each key head.
 */
ATTN_API size_t attn_plan_workspace_size(const attn_plan *plan);

/*
 * Runs a plan.  Allocates nothing.  tensors must have the presence, types and strides that the plan was made with (all four strides
 * 0 and the same dense strides written out are equivalent); workspace has workspace_size >= attn_plan_workspace_size(plan) bytes of
 * any alignment, which no concurrent call shares; its contents afterwards are meaningless.  Returns, with outputs untouched,
 *      ATTN_ERR_ARGUMENT     a tensor or part of the call that was planned and is missing, or the reverse; ATTN_LATER; another
 *                            type; a pointer not aligned to its elements; a length, page, list or origin out of its range; a
 *                            tensor that shares memory with the workspace
 *      ATTN_ERR_STRIDE       other strides; an output that shares elements with another tensor, or strides too intricate to
 *                            decide that; a packed output that overlaps itself, given the token count in cu_seqlens
 *      ATTN_ERR_SHAPE        a packed tensor with more elements than 64-bit addresses hold
 *      ATTN_ERR_MEMORY       workspace too small
 */
ATTN_API attn_status attn_execute(const attn_plan *plan, const attn_tensors *tensors, void *workspace, size_t workspace_size,
                                  attn_error *error);

/* Frees a plan; NULL is a no-op. */
ATTN_API void attn_plan_destroy(attn_plan *plan);

/* ---- introspection: tensors ------------------------------------------------------------------------------------ */

/* A family of problems: each has its own problem and tensors structs, with the same conventions. */
typedef enum attn_family {
    ATTN_FAMILY_ATTENTION = 0, /* attn_problem, attn_tensors */
    ATTN_FAMILY_LINEAR = 1     /* attn_linear_problem, attn_linear_tensors (attn/linear.h) */
} attn_family;

/* What an operation does with a tensor; ATTN_ROLE_NONE: nothing, and the tensor is an error if present. */
typedef enum attn_role { ATTN_ROLE_NONE = 0, ATTN_ROLE_INPUT = 1, ATTN_ROLE_OUTPUT = 2 } attn_role;

/* Whether a tensor is required.  One that other choices require counts as optional. */
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
    ATTN_AXIS_LIST = 16,    /* of a length of its own: starts, entries, bounds, rows of a matrix */
    ATTN_AXIS_WORD = 17     /* 64 keys of a tree */
} attn_axis;

enum { ATTN_OPERATIONS = 4 };     /* ATTN_FORWARD to ATTN_DOUBLE_BACKWARD */
enum { ATTN_MAX_OPERATIONS = 8 }; /* array size, with space for future ones */

/* One row of the table of tensors, which holds for every problem of the family. */
typedef struct attn_tensor_description {
    size_t struct_size; /* in: sizeof(attn_tensor_description) */
    const char *name;   /* the slot's: "q", "grad_bias" */
    size_t offset;      /* of the slot in the family's struct of tensors */
    attn_role role[ATTN_MAX_OPERATIONS];
    attn_need need[ATTN_MAX_OPERATIONS];
    attn_axis axes[4];
    unsigned types;  /* bits 1 << attn_dtype of the types that some problem allows */
    int gradient_of; /* index of the tensor whose gradient (grad_, second_) or tangent (tan_) this is; -1: of none */
    int may_alias;   /* index of the input whose memory this output may use; -1: none */
    int since;       /* the first version that has it, 10000 * MAJOR + 100 * MINOR + PATCH */
} attn_tensor_description;

/* Describes tensor number `index` (0, 1, ...) of a family.  ATTN_ERR_ARGUMENT past the last one. */
ATTN_API attn_status attn_tensor_describe(attn_family family, int index, attn_tensor_description *description, attn_error *error);

/* A tensor of a plan: enough to allocate it. */
typedef struct attn_tensor_plan {
    size_t struct_size; /* in: sizeof(attn_tensor_plan) */
    attn_role role;     /* ATTN_ROLE_NONE: the plan does not have it, and the fields below are 0 */
    attn_dtype dtype;
    int64_t shape[4];
    int64_t stride[4];
    int64_t bytes; /* from the lowest to the end of the highest element; packed: the size for one sequence of
                    * maximum length: divide by that length and multiply by your own token count */
} attn_tensor_plan;

/* Tensor number `index` of attn_tensor_describe(ATTN_FAMILY_ATTENTION).  ATTN_ERR_ARGUMENT past the last one. */
ATTN_API attn_status attn_plan_tensor(const attn_plan *plan, int index, attn_tensor_plan *tensor, attn_error *error);

/* ---- introspection: plans, CPUs, kernels ----------------------------------------------------------------------- */

/*
 * What a plan will do.  A tile is tile_q queries times block_kv keys; counts are over the whole problem at its full lengths
 * (lengths_q, lengths_kv and explicit offsets are known only at execution and count as full and 0), exact up to 2^18 query tiles
 * per head, and estimated from a sample of that many beyond.  Strings belong to the plan.
 */
typedef struct attn_plan_description {
    size_t struct_size; /* in: sizeof(attn_plan_description) */
    const char *kernel; /* "attn_fwd_f32_avx2" */
    /* Why this kernel: "best of 3 usable on this CPU", "requested by options.isa", ...; then which walk: "; decode, since ...",
     * "; tiles, since ...", "; options.invariant: walks in the order of tiles", "; each sequence by its length, in 2 walks". */
    const char *why;
    attn_isa isa;
    attn_dtype compute;
    int threads;
    int64_t tile_q;
    int64_t block_kv;
    int64_t tiles_total;    /* tiles of the full len_q x len_kv rectangles */
    int64_t tiles_visited;  /* of these, computed: the others have no visible key */
    int64_t tiles_modified; /* of these, passed through a mask or bias */
    size_t workspace_bytes;
    double flops; /* 2*(dim_qk + dim_v) for each visible (query, key) pair; pairs hidden by boolean masks count */
} attn_plan_description;

/* Fills in *description, whose struct_size is set.  ATTN_ERR_ARGUMENT: NULL, or an invalid struct_size. */
ATTN_API attn_status attn_plan_describe(const attn_plan *plan, attn_plan_description *description, attn_error *error);

typedef struct attn_cpu_description {
    size_t struct_size; /* in: sizeof(attn_cpu_description) */
    char name[64];      /* "AMD EPYC 9654 96-Core Processor"; "unknown" if the CPU does not report it */
    char features[240]; /* space-separated: "avx2 fma f16c avx512f ..."; only those the operating system enables */
    attn_isa isa;       /* the best usable one, ignoring ATTN_ISA */
    int threads;        /* what options.threads = 0 would mean now */
    size_t cache_l1d;   /* bytes, 0 if unknown */
    size_t cache_l2;
    size_t cache_l3;
} attn_cpu_description;

/* Fills in *description, whose struct_size is set.  ATTN_ERR_ARGUMENT: NULL, an invalid struct_size, or an ATTN_THREADS that
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
    int decode;   /* 1: forward for few queries and many keys, which a plan chooses automatically (attn_plan_description.why) */
    int reserved; /* 0 */
} attn_kernel_description;

/* Describes kernel number `index` (0, 1, ... in order of preference).  ATTN_ERR_ARGUMENT past the last one. */
ATTN_API attn_status attn_kernel_describe(int index, attn_kernel_description *description, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
