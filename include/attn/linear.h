/* SPDX-License-Identifier: MIT
 *
 * linear.h - linear attention: sums over keys kept in a state of fixed size, so that cost grows with n and decoding needs no cache
 * of keys.  Conventions of attn.h hold: statuses, errors, layouts, ownership, threads, options.
 *
 * One step of one head, with the features f of a token (dim_features of them), its value v and a state S [dim_features, dim_v]:
 *
 *      S_t = diag(decay_t) S_(t-1) + f(k_t) u_t^T      z_t = diag(decay_t) z_(t-1) + f(k_t)
 *      o_t = scale * S_t^T f(q_t) / n_t                n_t: the denominator, made from scale * f(q_t).z_t
 *
 *      u_t = v_t                                                   or, delta rule,
 *      u_t = beta_t (v_t - (diag(decay_t) S_(t-1))^T f(k_t))       or, low rank, u_t = v_t and S_t has a term more:
 *      S_t = diag(decay_t) S_(t-1) + f(k_t) v_t^T + write_t (S_(t-1)^T erase_t)^T
 *
 * (Katharopoulos et al. 2020, equations 16 to 20; retention: Sun et al. 2023, equation 5; gated: Yang et al. 2023, equation 3;
 * delta rule: Schlag et al. 2021, equation 24; gated delta rule: Yang et al. 2024, equation 10; low rank: Peng et al. 2025,
 * "RWKV-7", equation 17; ONNX LinearAttention 27.)  Not causal: every query reads the S and z of all keys.
 */
#ifndef ATTN_LINEAR_H
#define ATTN_LINEAR_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * f(x).  The random ones read omega, `features` rows w of dim_qk numbers (see attn_random_features), and x is first multiplied by
 * feature_scale, by default dim_qk^(-1/4), which makes f(q).f(k) estimate exp(q.k / sqrt(dim_qk)), as softmax attention has it.
 */
typedef enum attn_features {
    ATTN_FEATURES_ELU1 = 0,          /* max(x, 0) + exp(min(x, 0)) (Katharopoulos et al. 2020) */
    ATTN_FEATURES_IDENTITY = 1,      /* x: also for features that the caller computed */
    ATTN_FEATURES_RELU = 2,          /* max(x, 0) */
    ATTN_FEATURES_SOFTMAX = 3,       /* exp(x_c) / sum_d exp(x_d), over the features */
    ATTN_FEATURES_FAVOR = 4,         /* exp(w.x - |x|^2/2) / sqrt(features), positive (Choromanski et al. 2020, lemma 1) */
    ATTN_FEATURES_FOURIER = 5,       /* cos(w.x), then sin(w.x), / sqrt(features): of exp(-|q-k|^2/2) (Rahimi and Recht 2007) */
    ATTN_FEATURES_TRIGONOMETRIC = 6, /* the same times exp(|x|^2/2): of exp(q.k), unbiased and not positive */
} attn_features;

/* How many features f has: dim_qk, `features`, or twice that for cosines and sines; 0 for values that are none of these. */
ATTN_API int64_t attn_features_count(attn_features kind, int64_t dim_qk, int64_t features);

/* The denominator.  Published code has both guards; they differ in value and gradient where n is small. */
typedef enum attn_denominator {
    ATTN_DENOMINATOR_CLAMP = 0, /* max(scale * f(q).z, epsilon); where clamped, no gradient flows through it */
    ATTN_DENOMINATOR_ADD = 1,   /* scale * f(q).z + epsilon */
    ATTN_DENOMINATOR_NONE = 2   /* 1 */
} attn_denominator;

/* How a key enters the state. */
typedef enum attn_linear_rule {
    ATTN_RULE_ADD = 0,     /* u = v */
    ATTN_RULE_DELTA = 1,   /* u = beta (v - S^T f(k)): what the state already returns for this key is replaced; no denominator */
    ATTN_RULE_LOW_RANK = 2 /* u = v, and write_t times what the state returns for erase_t is added; no denominator */
} attn_linear_rule;

/* attn_linear_args.decay has log(decay_t): 0 keeps, negative forgets. */
typedef enum attn_linear_decay {
    ATTN_DECAY_NONE = 0,
    ATTN_DECAY_HEAD = 1,   /* [batch, heads_kv, len_kv, 1]; retention's constant per head has the strides 0, 1, 0 */
    ATTN_DECAY_CHANNEL = 2 /* [batch, heads_kv, len_kv, dim_features] */
} attn_linear_decay;

/* Three ways to the same numbers (within rounding). */
typedef enum attn_linear_form {
    ATTN_LINEAR_AUTO = 0,      /* what takes the least time for these sizes */
    ATTN_LINEAR_CHUNKED = 1,   /* matrix products over chunks of tokens; not with ATTN_RULE_LOW_RANK */
    ATTN_LINEAR_RECURRENT = 2, /* token by token; causal only */
    ATTN_LINEAR_QUADRATIC = 3  /* one chunk of all tokens, every pair multiplied out: for checking; as ATTN_LINEAR_CHUNKED */
} attn_linear_form;

/*
 * q is [batch, heads_q, len_q, dim_qk], k [batch, heads_kv, len_kv, dim_qk], v [batch, heads_kv, len_kv, dim_v] and o [batch,
 * heads_q, len_q, dim_v], as in attn_problem: f32, f16 and bf16 in any mixture, or all f64.  The query heads of a group read one
 * state.  causal needs len_q = len_kv; decay, the rules but ATTN_RULE_ADD, and ATTN_LINEAR_RECURRENT need causal.
 *
 * States are of the compute type (f32, or f64): state [batch, heads_kv, dim_features, dim_v] with a contiguous last axis, and, with
 * a denominator, state_sum [batch, heads_kv, dim_features, 1], which is z.  A sequence may be cut anywhere: the final state of one
 * part is the initial state of the next.
 */
typedef struct attn_linear_problem {
    size_t struct_size; /* sizeof(attn_linear_problem) */
    attn_op op;         /* ATTN_FORWARD or ATTN_BACKWARD */
    attn_shape shape;
    attn_layout q;
    attn_layout k;
    attn_layout v;
    attn_layout o;

    attn_features features;
    int64_t random_features;    /* rows of omega; 0 for the maps without */
    double feature_scale;       /* 0: dim_qk^(-1/4) for the random maps; the others have none */
    attn_scale_kind scale_kind; /* ATTN_SCALE_DEFAULT: 1 with a denominator, else 1/sqrt(dim_qk); or ATTN_SCALE_VALUE */
    double scale;

    attn_denominator denominator;
    double epsilon; /* >= 0; 0: 1e-6 */

    int causal;
    attn_linear_rule rule;
    attn_linear_decay decay;
    attn_linear_form form;
    int64_t chunk; /* tokens of a chunk; 0: what takes the least time.  Bits depend on it */

    int lengths; /* 1: attn_args.lengths has the tokens of each batch entry; rows past them are 0, and keys past them unread */
    attn_dtype index_dtype; /* of lengths: ATTN_I32 or ATTN_I64 (default) */
    int initial_state;      /* 1: initial_state (and initial_sum, with a denominator) is read */
    int final_state;        /* 1: final_state (and final_sum) is written.  It may be the initial state's memory */
    int want_denominator;   /* 1: denominators is written; backward reads it, and o, where there is a denominator */

    attn_layout decay_layout; /* inputs may broadcast */
    attn_layout beta;         /* [batch, heads_kv, len_kv, 1], delta rule */
    attn_layout erase;        /* [batch, heads_kv, len_kv, dim_features], low rank; no feature map is applied to these two */
    attn_layout write;
    attn_layout state; /* of initial_state and final_state and their gradients */
    attn_layout state_sum;
    attn_layout denominators; /* [batch, heads_q, len_q, 1] of the compute type */

    attn_layout grad_o; /* backward: laid out like their tensors */
    attn_layout grad_q;
    attn_layout grad_k;
    attn_layout grad_v;
    attn_layout grad_decay; /* [batch, heads_kv, len_kv, 1 or dim_features]: of log(decay), not reduced where decay broadcasts */
    attn_layout grad_beta;
    attn_layout grad_erase;
    attn_layout grad_write;
    int grad_final_state; /* 1: grad_final_state (and grad_final_sum) is read: the gradient that arrives through the final state */
    int grad_initial_state; /* 1: grad_initial_state (and grad_initial_sum) is written */
    int64_t reserved[8];
} attn_linear_problem;

/* Pointers to first elements, as in attn_args; what the problem does not use is ignored. */
typedef struct attn_linear_args {
    size_t struct_size; /* sizeof(attn_linear_args) */
    const void *q;
    const void *k;
    const void *v;
    void *o;
    const void *omega; /* [random_features][dim_qk], dense, of the compute type */
    const void *decay;
    const void *beta;
    const void *erase;
    const void *write;
    const void *lengths;
    const void *initial_state;
    const void *initial_sum;
    void *final_state;
    void *final_sum;
    void *denominators;
    const void *grad_o;
    const void *grad_final_state;
    const void *grad_final_sum;
    void *grad_q;
    void *grad_k;
    void *grad_v;
    void *grad_decay;
    void *grad_beta;
    void *grad_erase;
    void *grad_write;
    void *grad_initial_state;
    void *grad_initial_sum;
} attn_linear_args;

/* A checked problem with its kernel and sizes; immutable, as attn_plan. */
typedef struct attn_linear_plan attn_linear_plan;

/*
 * As attn_plan_create.  Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE, ATTN_ERR_STRIDE, ATTN_ERR_UNSUPPORTED (also for a form that does
 * not exist for the rule or decay) or ATTN_ERR_MEMORY, with *plan NULL.
 */
ATTN_API attn_status attn_linear_plan_create(attn_linear_plan **plan, const attn_linear_problem *problem,
                                             const attn_options *options, attn_error *error);

/* Bytes of workspace for attn_linear_execute: chunks and states for each thread, however long the sequence is.  But backward with
 * one decay per head adds a double or two for each token, and, recurrent or with a decay per channel or the delta rule, about
 * 2 sqrt(n) states, n the tokens, or the chunks. */
ATTN_API size_t attn_linear_workspace_size(const attn_linear_plan *plan);

/*
 * Forward: o, and on request final states and denominators.  Backward: every gradient of the loop at the top of this file.
 * Allocates nothing; the workspace rules are those of attn_execute.  Results have the same bits for any number of threads and any
 * batch. NaN or infinity in a key or value reaches the outputs of its head that come after it (all of them if not causal), and
 * forward no other; backward the gradients of its chunk too.  Returns ATTN_ERR_ARGUMENT or ATTN_ERR_MEMORY with outputs untouched.
 */
ATTN_API attn_status attn_linear_execute(const attn_linear_plan *plan, const attn_linear_args *args, void *workspace,
                                         size_t workspace_size, attn_error *error);

ATTN_API void attn_linear_plan_destroy(attn_linear_plan *plan);

/* Plans, allocates a workspace, runs and frees. */
ATTN_API attn_status attn_linear(const attn_linear_problem *problem, const attn_linear_args *args, attn_error *error);

/* What a plan does.  Texts belong to the plan. */
typedef struct attn_linear_description {
    size_t struct_size; /* in: sizeof(attn_linear_description) */
    const char *kernel; /* "attn_linear_f32_avx2" */
    const char *why;
    attn_isa isa;
    attn_dtype compute;
    attn_linear_form form; /* never ATTN_LINEAR_AUTO */
    int64_t chunk;         /* tokens; 1 where recurrent */
    int64_t dim_features;
    int threads;
    size_t workspace_bytes;
    double flops; /* of the products that this form multiplies out, 2 for each multiply-add; features are not counted */
} attn_linear_description;

ATTN_API attn_status attn_linear_plan_describe(const attn_linear_plan *plan, attn_linear_description *description,
                                               attn_error *error);

/* How the rows of omega are drawn. */
typedef enum attn_random_rows {
    ATTN_ROWS_ORTHOGONAL = 0, /* blocks of dim_qk rows that are orthogonal, each as long as a normal vector: less variance */
    ATTN_ROWS_NORMAL = 1      /* independent standard normal numbers */
} attn_random_rows;

/*
 * Fills omega [features][dim_qk], dense, f32 or f64, from a seed (Choromanski et al. 2020, section 3: Gram-Schmidt on normal rows,
 * lengths drawn apart).  Numbers come from Philox4x32-10 with key = seed and counter = (draw, row, column / 2, block), so they do
 * not depend on the machine beyond rounding; draw counts redraws.  Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE, ATTN_ERR_UNSUPPORTED.
 */
ATTN_API attn_status attn_random_features(attn_random_rows rows, int64_t features, int64_t dim_qk, uint64_t seed, uint32_t draw,
                                          void *omega, attn_dtype dtype, attn_error *error);

/* ---- Linformer --------------------------------------------------------------------------------------------------- */

/*
 * Keys and values projected along the tokens (Wang et al. 2020, "Linformer", equation 7), so that softmax attention has `rank` of
 * them however long the sequence is: cost grows with len * rank.  Project keys and values, each with a projection of its own or one
 * for both, and call attn_forward with len_kv = rank; not causal, since every projected key holds all tokens.
 *
 * x is [batch, heads, len, dim] of f32, f16, bf16 or f64; y [batch, heads, rank, dim] of the compute type; projection
 * [1, heads, len, rank], or with `shared` [1, 1, len, rank]: one row for each token, so the transposed of the paper's E.  All may
 * be strided but for their last axis.
 */
typedef struct attn_linformer {
    size_t struct_size; /* sizeof(attn_linformer) */
    int64_t batch;
    int64_t heads;
    int64_t len;
    int64_t rank;
    int64_t dim;
    int shared; /* 1: one projection for all heads */
    attn_layout x;
    attn_layout y;
    attn_layout projection; /* its first stride is not used; of the types of x, by default the compute type */
    int64_t reserved[4];
} attn_linformer;

/*
 *      y[b,h,r,c] = sum_j projection[h,j,r] x[b,h,j,c]
 *
 * Allocates a workspace.  Returns what attn_linear returns, with outputs untouched on an error; so does attn_linformer_backward.
 */
ATTN_API attn_status attn_linformer_project(const attn_linformer *problem, const void *projection, const void *x, void *y,
                                            attn_error *error);

/*
 *      grad_x[b,h,j,c] = sum_r projection[h,j,r] grad_y[b,h,r,c]      grad_projection[h,j,r] = sum_(b,c) x[b,h,j,c] grad_y[b,h,r,c]
 *
 * summed over heads too where they share.  grad_x is laid out like x, grad_y like y; grad_projection is dense, of the compute type.
 */
ATTN_API attn_status attn_linformer_backward(const attn_linformer *problem, const void *projection, const void *x,
                                             const void *grad_y, void *grad_x, void *grad_projection, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
