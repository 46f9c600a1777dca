/* SPDX-License-Identifier: MIT
 *
 * linear.h - linear attention: sums over keys kept in a state of fixed size, so that cost is linear in n and decoding needs no
 * cache of keys.  Conventions of attn.h hold: statuses, errors, slots, ownership, threads, options.
 *
 * One step of one head, with the features f of a token (dim_features of them), its value v and a state S [dim_features, dim_v]:
 *
 *      S_t = diag(decay_t) S_(t-1) + f(k_t) u_t^T      z_t = diag(decay_t) z_(t-1) + f(k_t)
 *      o_t = scale * S_t^T f(q_t) / n_t                n_t: the denominator, made from scale * f(q_t).z_t
 *
 *      u_t = v_t                                                   or, delta rule,
 *      u_t = beta_t (v_t - (diag(decay_t) S_(t-1))^T f(k_t))       or, low rank, u_t = v_t and S_t has one more term:
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
 * f(x).  The random maps read feature_matrix, `random_features` rows w of dim_qk numbers (see attn_random_features), and x is first
 * multiplied by feature_scale, by default dim_qk^(-1/4), so that f(q).f(k) estimates exp(q.k / sqrt(dim_qk)) as in softmax
 * attention.
 */
typedef enum attn_features {
    ATTN_FEATURES_ELU1 = 0,         /* max(x, 0) + exp(min(x, 0)) (Katharopoulos et al. 2020) */
    ATTN_FEATURES_IDENTITY = 1,     /* x: also for features computed by the caller */
    ATTN_FEATURES_RELU = 2,         /* max(x, 0) */
    ATTN_FEATURES_SOFTMAX = 3,      /* exp(x_c) / sum_d exp(x_d), over the features */
    ATTN_FEATURES_FAVOR = 4,        /* exp(w.x - |x|^2/2) / sqrt(features), positive (Choromanski et al. 2020, lemma 1) */
    ATTN_FEATURES_FOURIER = 5,      /* cos(w.x), then sin(w.x), / sqrt(features): of exp(-|q-k|^2/2) (Rahimi and Recht 2007) */
    ATTN_FEATURES_TRIGONOMETRIC = 6 /* the same times exp(|x|^2/2): of exp(q.k), unbiased and not positive */
} attn_features;

/* dim_features, the number of features of f: dim_qk, `features` (random_features of a problem), or twice that for cosines and
 * sines; 0 for unknown kinds and for negative sizes. */
ATTN_API int64_t attn_features_count(attn_features kind, int64_t dim_qk, int64_t features);

/* The denominator.  Published code uses either guard; they differ in value and gradient where n is small. */
typedef enum attn_denominator {
    ATTN_DENOMINATOR_CLAMP = 0, /* max(scale * f(q).z, epsilon); no gradient flows through it where it is clamped */
    ATTN_DENOMINATOR_ADD = 1,   /* scale * f(q).z + epsilon */
    ATTN_DENOMINATOR_NONE = 2   /* 1 */
} attn_denominator;

/* How a key enters the state. */
typedef enum attn_linear_rule {
    ATTN_LINEAR_RULE_ADD = 0, /* u = v */
    ATTN_LINEAR_RULE_DELTA =
        1, /* u = beta (v - S^T f(k)): what the state already returns for this key is replaced; no denominator */
    ATTN_LINEAR_RULE_LOW_RANK = 2 /* u = v, plus write_t times what the state returns for erase_t; no denominator */
} attn_linear_rule;

/* Which channels of a state share a decay, if the tensor decay is present. */
typedef enum attn_decay_kind {
    ATTN_DECAY_HEAD = 0, /* all: decay is [batch, heads_kv, len_kv, 1]; retention's constant per head has the strides 0, 1, 0, 0 */
    ATTN_DECAY_CHANNEL = 1 /* none: decay is [batch, heads_kv, len_kv, dim_features] */
} attn_decay_kind;

/* Three ways to compute the same numbers (within rounding). */
typedef enum attn_linear_form {
    ATTN_LINEAR_FORM_AUTO = 0,      /* the fastest for these sizes */
    ATTN_LINEAR_FORM_CHUNKED = 1,   /* matrix products over chunks of tokens; not with ATTN_LINEAR_RULE_LOW_RANK */
    ATTN_LINEAR_FORM_RECURRENT = 2, /* token by token; causal only */
    ATTN_LINEAR_FORM_QUADRATIC =
        3 /* one chunk of all tokens, every pair multiplied out: for checking; same limits as ATTN_LINEAR_FORM_CHUNKED */
} attn_linear_form;

/*
 * What to compute: sizes, choices and numbers.  The query heads of a group read one state.  causal needs len_q = len_kv; a decay,
 * all rules but ATTN_LINEAR_RULE_ADD, and ATTN_LINEAR_FORM_RECURRENT need causal.
 */
typedef struct attn_linear_problem {
    size_t struct_size; /* sizeof(attn_linear_problem) */
    attn_op op;         /* ATTN_FORWARD or ATTN_BACKWARD */
    attn_linear_form form;
    attn_shape shape;

    attn_features features;
    attn_denominator denominator;
    int64_t random_features;    /* rows of feature_matrix; 0 for maps without one */
    double feature_scale;       /* 0: dim_qk^(-1/4) for the random maps; the others have none */
    attn_scale_kind scale_kind; /* ATTN_SCALE_DEFAULT: 1 with a denominator, else 1/sqrt(dim_qk); or ATTN_SCALE_VALUE */
    int causal;
    double scale;
    double epsilon; /* of the denominator, >= 0; 0: 1e-6 */

    attn_linear_rule rule;
    attn_decay_kind decay_kind;
    int64_t chunk;       /* tokens per chunk; 0: the fastest.  Bits depend on it */
    int64_t pool;        /* rows of the states that initial_slots and final_slots choose from; 0: all slots are -1, or absent */
    int64_t snapshots;   /* columns of final_slots: 0 or 1 for the last state only */
    int64_t reserved[6]; /* must be 0 */
} attn_linear_problem;

/*
 * One slot per tensor, as in attn_tensors: one that is present is used.  B batch, Hq heads_q, Hkv heads_kv, Sq len_q, Skv len_kv, D
 * dim_qk, Dv dim_v, F dim_features (attn_features_count).
 *
 * q, k, v and o are f32, f16 and bf16 in any mixture, or all f64; by default q is f32 and the others have its type.  decay, beta,
 * erase and write are of any float type, by default the compute type (f32, or f64 if q is).  initial_state and final_state are of
 * the compute type by default, and f16 or bf16 where that is f32: what a sequence's tokens read and write is f32, and a final state
 * is rounded once, when it is stored.  feature_matrix, denominators, sums and the gradients of states are of the compute type.
 * Inputs may broadcast.  The last stride of q, k, v, o, erase, write, states and their gradients is 1.
 *
 * Ragged batches: if cu_seqlens is present, the sequences of the batch are concatenated, as in attn_tensors.  Every tensor with
 * tokens loses its batch: [1, heads, tokens, channels], with strides for token, head and channel (stride[0] is not used) and dense
 * as [token, head, channel].  shape.batch counts the sequences, len_q = len_kv is the most tokens that any of them may have, and
 * any may have none; a plan serves all batches within that.  States have a row for each sequence, and one without tokens ends as it
 * began.  With ATTN_LINEAR_FORM_AUTO and causal, forward takes sequences of one token token by token and others in the form that is
 * described, whatever else is in the batch.
 *
 * Slots, forward: an engine keeps the states of all its sequences as the `pool` rows of one tensor.  Sequence b begins with row
 * initial_slots[b] of initial_state [pool, Hkv, F, Dv] and of initial_sum, or at zero if that is -1, and its last state goes to row
 * final_slots[b] of final_state and final_sum, or nowhere if that is -1; other rows are neither read nor written.  In place, one
 * tensor is both pools and mostly one array both lists:
 *
 *      tensors.initial_state.data = tensors.final_state.data = pool;    tensors.initial_slots = tensors.final_slots = slots;
 *
 * Sequences may begin with the same row (a shared prefix), if none of them writes it.
 *
 * Snapshots: final_slots may have problem.snapshots columns.  Column j gets the state without the last j tokens, for j up to the
 * length of the sequence (which leaves the state it began with); columns past that are not written.  To decode with drafts, a
 * sequence brings its last token and n-1 drafts as n tokens, with snapshots = n.  If the model then accepts the first a of these n
 * tokens, the next call begins where they left the state, and nothing is computed again:
 *
 *      initial_slots[b] = final_slots[b][n - a];        the other rows of this list are free
 *
 * Snapshots are taken token by token: ATTN_LINEAR_FORM_AUTO is then ATTN_LINEAR_FORM_RECURRENT, and the other forms are refused.
 *
 * With a denominator, a state and its sum z go together: both or neither.  A sequence may be split anywhere: the final state of one
 * part is the initial state of the next, in the same memory if the strides are equal.  Without query heads (heads_q = 0; q and o
 * are ATTN_EMPTY) forward makes the final state and nothing else.
 */
typedef struct attn_linear_tensors {
    size_t struct_size;    /* sizeof(attn_linear_tensors) */
    const attn_call *call; /* must be NULL: linear attention has no other per-call arguments */

    attn_input q;             /* [B, Hq, Sq, D] */
    attn_input k;             /* [B, Hkv, Skv, D] */
    attn_input v;             /* [B, Hkv, Skv, Dv] */
    attn_output o;            /* [B, Hq, Sq, Dv]: written by forward; read by backward if there is a denominator (attn_saved) */
    attn_output denominators; /* [B, Hq, Sq, 1]: likewise */

    attn_input feature_matrix; /* [random_features, D] [1,1,..], dense: the rows w of the random maps */
    attn_input decay;          /* [B, Hkv, Skv, 1 or F]: log(decay_t): 0 keeps, negative forgets */
    attn_input beta;           /* [B, Hkv, Skv, 1]: delta rule */
    attn_input erase;          /* [B, Hkv, Skv, F]: low rank; no feature map is applied to erase and write */
    attn_input write;          /* [B, Hkv, Skv, F] */
    attn_input lengths;        /* [B], dense, i64 or i32: tokens of each entry; later keys are not read; causal: later rows are 0 */

    attn_input initial_state; /* [B, Hkv, F, Dv]; with initial_slots [pool, Hkv, F, Dv] */
    attn_input initial_sum;   /* [B, Hkv, F, 1]; likewise */
    attn_output final_state;  /* [B, Hkv, F, Dv]: forward; may be the initial state */
    attn_output final_sum;    /* [B, Hkv, F, 1]: likewise */

    /* ATTN_BACKWARD: needs grad_o, grad_q, grad_k and grad_v, and those of decay, beta, erase and write if these are present. */
    attn_input grad_o;
    attn_input grad_final_state; /* absent: 0 */
    attn_input grad_final_sum;
    attn_output grad_q;
    attn_output grad_k;
    attn_output grad_v;
    attn_output grad_decay; /* of log(decay), [B, Hkv, Skv, 1 or F] even if decay broadcasts */
    attn_output grad_beta;
    attn_output grad_erase;
    attn_output grad_write;
    attn_output grad_initial_state; /* with initial_state */
    attn_output grad_initial_sum;

    /* Ragged batches: sequence b owns the tokens cu_seqlens[b] .. cu_seqlens[b+1]-1. */
    attn_input cu_seqlens; /* [B + 1], dense, i64 or i32: starts at 0, never decreases; without lengths */

    /* Rows of pools of states; i64 or i32, dense, -1 for none.  Forward. */
    attn_input initial_slots; /* [B] */
    attn_input final_slots;   /* [B, 1, 1, snapshots or 1]: no row twice, nor one where another sequence begins */
} attn_linear_tensors;

/* A checked problem with its kernel and sizes; immutable, like attn_plan. */
typedef struct attn_linear_plan attn_linear_plan;

/*
 * Like attn_plan_create: reads only presence, types and strides of the tensors.  Returns ATTN_ERR_ARGUMENT, ATTN_ERR_SHAPE,
 * ATTN_ERR_STRIDE, ATTN_ERR_UNSUPPORTED (also for a form that does not exist for the rule or decay) or ATTN_ERR_MEMORY, with *plan
 * NULL.
 */
ATTN_API attn_status attn_linear_plan_create(attn_linear_plan **plan, const attn_linear_problem *problem,
                                             const attn_linear_tensors *tensors, const attn_options *options, attn_error *error);

/* Bytes of workspace for attn_linear_execute: chunks and states for each thread, however long the sequence is.  But backward with
 * one decay per head adds a double or two per token, and backward that is recurrent or has a decay per channel or the delta rule
 * adds about 2 sqrt(n) states, with n the number of tokens, or of chunks. */
ATTN_API size_t attn_linear_plan_workspace_size(const attn_linear_plan *plan);

/*
 * Forward: o, and on request final states and denominators.  Backward: every gradient of the loop at the top of this file.
 * Allocates nothing; the workspace rules are those of attn_execute.  Results have the same bits for any number of threads and any
 * batch, ragged or one sequence at a time.  Returns ATTN_ERR_ARGUMENT for lengths, cu_seqlens or slots that are out of range,
 * and for slots that are there twice.  In
 * forward, NaN or infinity in a key or value affects the later outputs of its head (all of them if not causal) and changes no bit
 * of the others; in backward it also affects the gradients of its chunk.  Returns what attn_execute returns, with outputs
 * untouched.
 */
ATTN_API attn_status attn_linear_execute(const attn_linear_plan *plan, const attn_linear_tensors *tensors, void *workspace,
                                         size_t workspace_size, attn_error *error);

/* Frees a plan; NULL is a no-op. */
ATTN_API void attn_linear_plan_destroy(attn_linear_plan *plan);

/* Plans, allocates a workspace, runs and frees. */
ATTN_API attn_status attn_linear_compute(const attn_linear_problem *problem, const attn_linear_tensors *tensors, attn_error *error);

/* Like attn_plan_tensor: tensor number `index` of attn_tensor_describe(ATTN_FAMILY_LINEAR). */
ATTN_API attn_status attn_linear_plan_tensor(const attn_linear_plan *plan, int index, attn_tensor_plan *tensor, attn_error *error);

/* What a plan does.  Strings belong to the plan. */
typedef struct attn_linear_plan_description {
    size_t struct_size; /* in: sizeof(attn_linear_plan_description) */
    const char *kernel; /* "attn_linear_f32_avx2" */
    const char *why;
    attn_isa isa;
    attn_dtype compute;
    attn_linear_form form; /* never ATTN_LINEAR_FORM_AUTO */
    int64_t chunk;         /* tokens; 1 if recurrent */
    int64_t dim_features;
    int threads;
    size_t workspace_bytes;
    double flops; /* of the matrix products of this form, 2 for each multiply-add; features are not counted; ragged: if every
                   * sequence has len_kv tokens */
} attn_linear_plan_description;

/* Like attn_plan_describe. */
ATTN_API attn_status attn_linear_plan_describe(const attn_linear_plan *plan, attn_linear_plan_description *description,
                                               attn_error *error);

/* How the rows of a feature_matrix are drawn. */
typedef enum attn_random_rows {
    ATTN_RANDOM_ROWS_ORTHOGONAL = 0, /* blocks of dim_qk orthogonal rows, each as long as a normal vector: less variance */
    ATTN_RANDOM_ROWS_NORMAL = 1      /* independent standard normal numbers */
} attn_random_rows;

/*
 * Fills matrix, [1, 1, features, dim_qk] of f32 (default) or f64, from a seed (Choromanski et al. 2020, section 3: Gram-Schmidt on
 * normal rows, lengths drawn separately).  Numbers come from Philox4x32-10 with key = seed and counter = (draw, row, column / 2,
 * block), so they do not depend on the machine beyond rounding; draw is the number of the redraw.  Returns ATTN_ERR_ARGUMENT,
 * ATTN_ERR_SHAPE, ATTN_ERR_STRIDE or ATTN_ERR_UNSUPPORTED with matrix untouched.
 */
ATTN_API attn_status attn_random_features(attn_random_rows rows, int64_t features, int64_t dim_qk, uint64_t seed, uint32_t draw,
                                          const attn_output *matrix, attn_error *error);

/* ---- Linformer --------------------------------------------------------------------------------------------------- */

/*
 * Keys and values projected along the tokens (Wang et al. 2020, "Linformer", equation 7), so that softmax attention has `rank` of
 * them however long the sequence is: cost grows with len * rank.  Project keys and values, each with its own projection or both
 * with the same, and call attn_compute with len_kv = rank; not causal, since every projected key mixes all tokens.
 */
typedef struct attn_linformer_problem {
    size_t struct_size; /* sizeof(attn_linformer_problem) */
    int64_t batch;
    int64_t heads;
    int64_t len;
    int64_t rank;
    int64_t dim;
    int64_t reserved[4]; /* must be 0 */
} attn_linformer_problem;

/*
 * x and grad_x are of f32, f16, bf16 or f64 (f64 both or neither), x by default f32, grad_x by default of x's type; y, grad_y and
 * grad_projection have the compute type; projection may have any type x may have, by default the compute type.  The last stride of
 * each is 1; a projection that all heads share has stride[1] = 0 and some other stride that is not 0, and its gradient has one
 * head.
 */
typedef struct attn_linformer_tensors {
    size_t struct_size;          /* sizeof(attn_linformer_tensors) */
    const attn_call *call;       /* must be NULL */
    attn_input x;                /* [batch, heads, len, dim] */
    attn_input projection;       /* [1, heads, len, rank]: a row for each token: the transpose of the paper's E */
    attn_output y;               /* [batch, heads, rank, dim]: attn_linformer_project */
    attn_input grad_y;           /* [batch, heads, rank, dim], like y: attn_linformer_backward, as are the next two */
    attn_output grad_x;          /* [batch, heads, len, dim] */
    attn_output grad_projection; /* [1, heads or 1, len, rank] */
} attn_linformer_tensors;

/*
 *      y[b,h,r,c] = sum_j projection[h,j,r] x[b,h,j,c]
 *
 * Plans and allocates for the call, with options, which may be NULL.  Returns what attn_linear_compute returns, with outputs
 * untouched on error; so does attn_linformer_backward.
 */
ATTN_API attn_status attn_linformer_project(const attn_linformer_problem *problem, const attn_linformer_tensors *tensors,
                                            const attn_options *options, attn_error *error);

/*
 *      grad_x[b,h,j,c] = sum_r projection[h,j,r] grad_y[b,h,r,c]      grad_projection[h,j,r] = sum_(b,c) x[b,h,j,c] grad_y[b,h,r,c]
 *
 * summed over the heads too if they share the projection.
 */
ATTN_API attn_status attn_linformer_backward(const attn_linformer_problem *problem, const attn_linformer_tensors *tensors,
                                             const attn_options *options, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
