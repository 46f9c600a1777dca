/* SPDX-License-Identifier: MIT
 *
 * bilinear.h - metrics and bilinear forms: B(u, v) = sum_ab u_a g_ab v_b, when g is a metric, and attention whose scores are q^T g
 * k.  Conventions of attn.h hold: statuses, errors, ownership, threads.
 *
 * Arrays are dense, of double (attn_convert makes them of other types): a matrix is [dim][dim], row by row, and vectors are
 * [count][dim].  An output shares elements with nothing (else ATTN_ERR_STRIDE).  Sizes are at least 1, counts may be 0.  Every
 * function returns ATTN_ERR_ARGUMENT for NULL and ATTN_ERR_SHAPE for invalid sizes, with outputs untouched; other errors are listed
 * with each function.
 */
#ifndef ATTN_BILINEAR_H
#define ATTN_BILINEAR_H

#include "attn/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- metrics ---- */

/* g = scale I; scale 0: 1/sqrt(dim), with which B is the scaled dot product.  Scale 1 is the Euclidean metric.  Returns
 * ATTN_ERR_ARGUMENT for a scale that is not finite. */
ATTN_API attn_status attn_metric_scaled(int64_t dim, double scale, double *g, attn_error *error);

/* g = diag(diagonal). */
ATTN_API attn_status attn_metric_diagonal(int64_t dim, const double *diagonal, double *g, attn_error *error);

/* g = w^T w, w [rows][dim]: positive semidefinite, and definite if w has rank dim.  (In an attention, ATTN_SCORE_METRIC takes w
 * itself and never forms g.) */
ATTN_API attn_status attn_metric_learned(int64_t rows, int64_t dim, const double *w, double *g, attn_error *error);

/* The gradient of attn_metric_learned: grad_w = w (grad_g + grad_g^T). */
ATTN_API attn_status attn_metric_learned_backward(int64_t rows, int64_t dim, const double *w, const double *grad_g, double *grad_w,
                                                  attn_error *error);

/*
 * inverse = g^-1, by elimination with partial pivoting.  Returns ATTN_ERR_ARGUMENT for a matrix that is singular, exactly or within
 * rounding (|g| |g^-1| >= 2^52 / dim in the norm of largest absolute column sum), or holds a number that is not finite;
 * ATTN_ERR_MEMORY.
 */
ATTN_API attn_status attn_metric_inverse(int64_t dim, const double *g, double *inverse, attn_error *error);

/* The gradient of attn_metric_inverse, from its result: grad_g = -inverse^T grad_inverse inverse^T.  ATTN_ERR_MEMORY. */
ATTN_API attn_status attn_metric_inverse_backward(int64_t dim, const double *inverse, const double *grad_inverse, double *grad_g,
                                                  attn_error *error);

/* Results of attn_metric_check. */
typedef struct attn_metric_properties {
    size_t struct_size;    /* in: sizeof(attn_metric_properties) */
    int symmetric;         /* |g_ab - g_ba| <= tolerance max |g| for all a and b */
    int positive_definite; /* min_eigenvalue > dim 2^-52 max(|min_eigenvalue|, |max_eigenvalue|): above 0 by more than rounding */
    int valid;             /* both: g is a metric */
    int reserved;          /* 0 */
    double min_eigenvalue; /* of (g + g^T) / 2, which decides whether v^T g v > 0 */
    double max_eigenvalue;
} attn_metric_properties;

/* Is g a metric?  A semidefinite one is not: it has distance 0 between different vectors.  tolerance 0 is 1e-6.  Returns
 * ATTN_ERR_ARGUMENT for a negative tolerance and for numbers that are not finite; ATTN_ERR_MEMORY. */
ATTN_API attn_status attn_metric_check(int64_t dim, double tolerance, const double *g, attn_metric_properties *properties,
                                       attn_error *error);

/* ---- vectors ---- */

/* lowered_a = sum_b g_ab v_b, for each of `count` vectors; attn_index_raise is the same with the inverse of g, so it undoes
 * attn_index_lower. */
ATTN_API attn_status attn_index_lower(int64_t count, int64_t dim, const double *v, const double *g, double *lowered,
                                      attn_error *error);
ATTN_API attn_status attn_index_raise(int64_t count, int64_t dim, const double *v, const double *inverse, double *raised,
                                      attn_error *error);

/* The gradient of both, from grad, the gradient of their result: grad_v = g^T grad, grad_g = sum grad v^T.  Each may be NULL. */
ATTN_API attn_status attn_index_backward(int64_t count, int64_t dim, const double *v, const double *g, const double *grad,
                                         double *grad_v, double *grad_g, attn_error *error);

/* ---- forms ---- */

/* form[i] = B(u_i, v_i), count numbers.  Linear in u, in v and in g; B(u, v) = B(v, u) if g is symmetric. */
ATTN_API attn_status attn_bilinear_form(int64_t count, int64_t dim, const double *u, const double *v, const double *g, double *form,
                                        attn_error *error);

/* Its gradient, grad [count]: grad_u_i = grad_i g v_i, grad_v_i = grad_i g^T u_i, grad_g = sum_i grad_i u_i v_i^T.  Each may be
 * NULL. */
ATTN_API attn_status attn_bilinear_form_backward(int64_t count, int64_t dim, const double *u, const double *v, const double *g,
                                                 const double *grad, double *grad_u, double *grad_v, double *grad_g,
                                                 attn_error *error);

/* scores[i][j] = B(q_i, k_j), all pairs of len_q queries and len_kv keys: Q g K^T.  Returns ATTN_ERR_MEMORY. */
ATTN_API attn_status attn_bilinear_form_batch(int64_t len_q, int64_t len_kv, int64_t dim, const double *q, const double *k,
                                              const double *g, double *scores, attn_error *error);

/* Its gradient, grad [len_q][len_kv]: grad_q = grad K g^T, grad_k = grad^T Q g, grad_g = Q^T grad K.  Each may be NULL.
 * ATTN_ERR_MEMORY. */
ATTN_API attn_status attn_bilinear_form_batch_backward(int64_t len_q, int64_t len_kv, int64_t dim, const double *q, const double *k,
                                                       const double *g, const double *grad, double *grad_q, double *grad_k,
                                                       double *grad_g, attn_error *error);

/* form[i] = B(v_i, v_i).  Its gradient is grad_u + grad_v of attn_bilinear_form_backward with u = v. */
ATTN_API attn_status attn_quadratic_form(int64_t count, int64_t dim, const double *v, const double *g, double *form,
                                         attn_error *error);

/* form[i] = u_i.v_i for metric "euclidean", u_i.v_i / sqrt(dim) for "scaled" or NULL.  ATTN_ERR_ARGUMENT for any other name. */
ATTN_API attn_status attn_inner_product(int64_t count, int64_t dim, const double *u, const double *v, const char *metric,
                                        double *form, attn_error *error);

/* ---- attention ---- */

/*
 * attn_compute with s_ij = B(q_i, k_j) instead of the dot product, g [dim_qk][dim_qk]: `problem` with ATTN_SCORE_GENERAL,
 * score_matrix = g of double and, unless scale_kind is ATTN_SCALE_VALUE, scale 1.  Every option, output (Q g K^T itself: the tensor
 * scores), storage type and derivative of that kind is available; with ATTN_BACKWARD, grad_score_matrix, if present, receives the
 * gradient of g.  options may be NULL.  Returns what attn_compute returns, and ATTN_ERR_ARGUMENT if problem->score has a kind or
 * dim_k of its own or tensors have a score_matrix.
 */
ATTN_API attn_status attn_bilinear_attention(const attn_problem *problem, const attn_tensors *tensors, const double *g,
                                             const attn_options *options, attn_error *error);

#ifdef __cplusplus
}
#endif

#endif
