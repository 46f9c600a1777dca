/* SPDX-License-Identifier: MIT
 *
 * analysis.h - analysis of attention distributions: the softmax with its temperature, entropy and energies; heads compared; one
 * attention step by step, forward and backward; gradients checked by differences.  In double, for inspection, not for speed.
 *
 * Conventions of attn.h hold: statuses, errors, ownership, threads.  Logarithms are natural.  `keep` selects which of n scores
 * count (those not 0; NULL: all); if none does, weights and all numbers but log_partition (-infinity) and free_energy (infinity)
 * are 0.  An output that shares elements with another array is ATTN_ERR_STRIDE, except that where allowed it may be an input
 * itself.
 */
#ifndef ATTN_ANALYSIS_H
#define ATTN_ANALYSIS_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the softmax family ---- */

/* Statistics of weights_j = exp(s_j / T) / Z.  Energies are -s_j. */
typedef struct attn_gibbs {
    size_t struct_size;      /* in: sizeof(attn_gibbs) */
    double log_partition;    /* log Z = log sum_j exp(s_j / T); Z itself overflows at scores above 709 T */
    double free_energy;      /* F = -T log Z = mean_energy - T entropy */
    double mean_energy;      /* -sum_j weights_j s_j */
    double entropy;          /* H = -sum_j weights_j log weights_j, within 0 .. log n */
    double effective_states; /* exp H */
    double heat_capacity;    /* sum_j weights_j (s_j - mean)^2 / T^2 */
} attn_gibbs;

/*
 * The Gibbs distribution of n scores at a temperature above 0 (beta = 1 / temperature).  Adding a constant to all scores changes
 * neither weights nor entropy; T = 1 is the softmax; entropy grows with T from that of the uniform distribution over the largest
 * scores to log n.
 *
 *  weights [out, may be NULL]  n numbers; may be scores
 *  gibbs   [out, may be NULL]
 *
 * Returns ATTN_ERR_ARGUMENT for NULL scores, a temperature that is not above 0 and finite, or an invalid gibbs->struct_size,
 * ATTN_ERR_SHAPE for a negative n, with outputs untouched.
 */
ATTN_API attn_status attn_softmax(int64_t n, double temperature, const double *scores, const unsigned char *keep, double *weights,
                                  attn_gibbs *gibbs, attn_error *error);

/* log weights_j = s_j / T - log Z; -infinity for scores that are not kept; logs may be scores.  Errors as above. */
ATTN_API attn_status attn_log_softmax(int64_t n, double temperature, const double *scores, const unsigned char *keep, double *logs,
                                      attn_error *error);

/* Row t of weights [count][n] is the softmax at temperatures[t]; entropy [count], may be NULL.  Errors as above. */
ATTN_API attn_status attn_temperature_sweep(int64_t n, int64_t count, const double *scores, const double *temperatures,
                                            double *weights, double *entropy, attn_error *error);

/* -sum_j p_j log p_j with 0 log 0 = 0; 0 for n <= 0. */
ATTN_API double attn_entropy(int64_t n, const double *p);
/* log n; 0 for n <= 1. */
ATTN_API double attn_max_entropy(int64_t n);
/* attn_entropy / log n, within 0 .. 1; 0 for n <= 1 (some libraries give NaN). */
ATTN_API double attn_normalised_entropy(int64_t n, const double *p);
/* exp(attn_entropy): the effective number of keys of a query, within 1 .. n. */
ATTN_API double attn_effective_states(int64_t n, const double *p);
/* sum_j p_j log(p_j / q_j); infinity where q_j = 0 < p_j. */
ATTN_API double attn_kl_divergence(int64_t n, const double *p, const double *q);
/* Between uniformly drawn queries and keys: the entropy of the mean of `rows` distributions minus the mean of their entropies. */
ATTN_API double attn_mutual_information(int64_t rows, int64_t n, const double *weights);

/* jacobian[j][k] = p_j (delta_jk - p_k) / T, the derivative of weights p by scores: symmetric, positive semidefinite, rows and
 * columns sum to 0.  This function, attn_softmax_jvp and attn_head_entropy return what attn_softmax returns for NULL (unless there
 * is nothing to read or write), sizes and temperatures. */
ATTN_API attn_status attn_softmax_jacobian(int64_t n, double temperature, const double *p, double *jacobian, attn_error *error);
/* out_j = p_j (x_j - sum_k p_k x_k) / T: the Jacobian, which is symmetric, times a vector; out may be x. */
ATTN_API attn_status attn_softmax_jvp(int64_t n, double temperature, const double *p, const double *x, double *out,
                                      attn_error *error);

/* ---- heads ---- */

/* 1 minus the mean cosine between the weights [heads][n] of different heads, over all pairs: 0 if all heads look alike, or there is
 * at most one head. */
ATTN_API double attn_head_diversity(int64_t heads, int64_t n, const double *weights);
/* entropy[h] = the mean entropy of the rows of head h, weights [heads][rows][n]. */
ATTN_API attn_status attn_head_entropy(int64_t heads, int64_t rows, int64_t n, const double *weights, double *entropy,
                                       attn_error *error);

/* ---- one attention, step by step; options (threads, instruction set, allocator) may be NULL ---- */

/* Dense arrays of the caller; NULL: not requested.  [pairs] is [batch][heads_q][len_q][len_kv], [rows] [batch][heads_q][len_q]. */
typedef struct attn_steps {
    size_t struct_size;    /* sizeof(attn_steps) */
    double *raw;           /* [pairs] q.k */
    double *scores;        /* [pairs] scaled, capped, biased; -infinity where the key is not visible */
    double *weights;       /* [pairs] */
    double *log_partition; /* [rows] */
    double *partition;     /* [rows] exp of it: infinite above 709 */
} attn_steps;

/*
 * Computes an attention and keeps its intermediate results; the output goes to tensors->o.  Any ATTN_FORWARD problem in f64 that is
 * not packed; problem->outputs and the output slots other than o are not used.  Returns what attn_compute returns, and
 * ATTN_ERR_UNSUPPORTED for other types and packed sequences.
 */
ATTN_API attn_status attn_decompose(const attn_problem *problem, const attn_tensors *tensors, const attn_steps *steps,
                                    const attn_options *options, attn_error *error);

/* Every step of a backward pass; all norms are Frobenius norms. */
typedef struct attn_flow {
    size_t struct_size;   /* sizeof(attn_flow) */
    double *grad_weights; /* [pairs] dP = dO V^T where a key is visible, else 0; may be NULL, as may all others */
    double *grad_scores;  /* [pairs] dS = P (dP - delta), each row of which sums to 0 */
    double *grad_q;       /* the shapes of q, k and v, dense */
    double *grad_k;
    double *grad_v;
    double norm_grad_o, norm_grad_weights, norm_grad_scores, norm_grad_q, norm_grad_k, norm_grad_v; /* [out] */
} attn_flow;

/*
 * The gradients of L = <grad_o, O>, or of L = |O|^2 / 2 (grad_o = O) if tensors->grad_o is absent.  Problems as in attn_decompose;
 * without dropout (ATTN_ERR_UNSUPPORTED).  q, k, v, o and grad_o are dense.  tensors->o is written.
 */
ATTN_API attn_status attn_gradient_flow(const attn_problem *problem, const attn_tensors *tensors, attn_flow *flow,
                                        const attn_options *options, attn_error *error);

/* Results of attn_verify_gradients. */
typedef struct attn_verification {
    size_t struct_size;    /* in: sizeof(attn_verification) */
    int64_t checked;       /* elements of q, k and v */
    double max_error;      /* the largest |difference quotient - gradient| */
    double relative_error; /* the largest, relative to the norm per element of its tensor's gradient */
    double limit;          /* bound on max_error if the gradients are correct */
    int correct;           /* max_error <= limit */
    int reserved;          /* 0 */
} attn_verification;

/*
 * Checks ATTN_BACKWARD against central differences of ATTN_FORWARD: (L(x + step) - L(x - step)) / (2 step), for up to `most`
 * elements of each of q, k and v, evenly spaced (0: all).  L and conditions as in attn_gradient_flow, but dropout is allowed, since
 * its mask stays fixed.  step 0 is 1e-5.  Each element takes two forward passes.
 */
ATTN_API attn_status attn_verify_gradients(const attn_problem *problem, double step, int64_t most, const attn_tensors *tensors,
                                           attn_verification *result, const attn_options *options, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
