/* SPDX-License-Identifier: MIT
 *
 * attn_bound.h - error bounds: how far a gradient, a tangent or a gradient of double backward may be from that of ref/.
 *
 * Each of them is a sum of products: of a weight, a tangent of a score and, in double backward, a gradient of a weight.  Each of
 * these factors carries a relative error of at most
 *
 *      a_i u,   a_i = 8 + Dv + Skv + Sq (of all heads of a group) + |lse_i| + max_j e_ij       u: the unit roundoff
 *      e_ij         = (D + 2) (1 + 2/C) sum_c |scale q_c k_jc| + |bias_ij| + |alibi_ij|        C: the softcap, or infinity
 *
 * (for other scores ref_score_roundings replaces D, and ref_score_size the sum; the derivative of tanh counts as 1; a bias by
 * distance adds its absolute value; if score matrices or tables have gradients, the number of queries of all heads and batch
 * entries and of rows of the table are added to a_i),
 *
 * which counts every chain of roundings once: those of a score, whose error becomes one of its weight and of the cap's derivatives,
 * of the gradient of a weight, of the sums over keys and queries, and of lse.  So a result's bound is the same formula over
 * absolute values, with term (i, j) multiplied by e^(2 a_i u) - 1 in forward mode and backward, and with 3 for 2 in double
 * backward. Weights below the smallest normal number may be lost entirely.
 *
 * However large a_i u is, a computed weight is at most H_ij = min(P_ij e^(a_i u), 1), so a term's error is also at most 3 H_ij
 * times the sizes of its other factors, in which means over keys have the weights H_ij.  Where a score may overflow there is no
 * bound.
 *
 * If kernels flush numbers below `flushed` to 0, a score may lose scale (sum_c |q_c| + |k_jc| + 1) flushed, and dO . v the same
 * with their sizes: divided by u, these are added to e_ij and to |dO| . |v|.
 *
 * Elementwise normalisers: weights of the sigmoid have the error of the score, and their gradient subtracts no mean.  ReLU's error
 * is the score's own, so a weight counts as (1 + |score|) over the number of keys that the query sees; and if the score is nearer
 * to 0 than its error, its gradient may be 0 or not.
 */
#ifndef ATTN_BOUND_H
#define ATTN_BOUND_H

#include "attn_ref.h"

/* The problem in absolute values; returns 0 if out of memory.  Its keys are negative for distances, so that differences become
 * sums.  ref_sizes_free frees its arrays. */
int ref_sizes_make(ref_problem *sizes, const ref_problem *p);
void ref_sizes_free(ref_problem *sizes);

/* The size of a score before the scale: the loop of its kind over absolute values.  A cosine's is divided by |q| |k|; a distance's
 * is (|q| + |k|)^2 of each channel, since the square is expanded; an additive score's is sum_c |w_c|, plus the error of q + b if
 * there is a b. */
double ref_score_size(const ref_problem *sizes, int64_t b, int64_t h, int64_t i, int64_t j);
/* How many roundings one of its terms goes through, not counting two for the scale:
 *
 *      dot         D, and two with relative keys: q + u is rounded, and so is the sum of both products
 *      general     D of w^T q, Dk of its product with k, and one of w
 *      metric      D of w q, one per row of w, D, and w twice
 *      cosine      2 D + 8, with those of the lengths; distance the same
 *      additive    D + 16, with those of tanh
 */
int64_t ref_score_roundings(const ref_problem *p);
/* Adds what dx, the size of a raw score's gradient, contributes to those of its inputs; dW may not be NULL if there is W. */
void ref_gradient_size(const ref_problem *sizes, const ref_gradients *G, int64_t b, int64_t h, int64_t i, int64_t j, double dx);

/* The arithmetic of a kernel. */
typedef struct ref_arithmetic {
    double unit;          /* u: half the distance from 1 to the next number */
    double normal;        /* the smallest normal number */
    double denormal;      /* the smallest number above 0 */
    double flushed;       /* operands and results of products with q, k, v or dO below this count as 0; 0: none */
    const double *O_lost; /* [B][Hq][Sq][Dv]: error of O from storing it in fewer bits; NULL: none */
    /* Of ref_problem.modify: |f(s)| <= |s| + shift, and an error of s causes a relative error of its slope of `curvature` times
     * that. */
    double modifier_curvature, modifier_shift;
    /* Forward, with rows of 8 bits that are multiplied as integers.  A query is cut to 2^22 units of its largest number or more, so
     * that a score loses 2.01 u max_c |scale q_c| sum_c |k_jc|; a weight times its value's scale to 2^23 units of the largest of
     * these, so that an output loses 1.01 u max_j (H_ij |value_scale_j|) sum_j |v_jc / value_scale_j|. */
    int integer_keys;
    const double *value_scale; /* [B, Hkv, Skv], or NULL */
} ref_arithmetic;

/* Bounds of the operations' outputs, each shaped like the output itself; NULL if out of memory. */
typedef struct ref_bounds {
    double *O, *lse;               /* of the outputs of forward and ref_jvp, and those of double backward for dO and dlse */
    double *Q, *K, *V, *S;         /* of backward and double backward */
    double *scale, *slopes, *sink; /* of backward: [Hq], [B][Hq], [Hq] */
    double *W, *relative_keys, *relative_values, *relative_u, *relative_v, *bias_table; /* of backward: like their tensors */
} ref_bounds;

/* From the inputs in `s` (its outputs are not used): backward reads dO and dlse, forward mode the tangents, double backward all of
 * them.  Return 0 if out of memory. */
int ref_bound_forward(ref_bounds *b, const ref_problem *p, const ref_arithmetic *a);
int ref_bound_backward(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const ref_arithmetic *a);
int ref_bound_jvp(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const ref_arithmetic *a);
int ref_bound_double_backward(ref_bounds *b, const ref_problem *p, const ref_gradgrad *s, const ref_arithmetic *a);
void ref_bounds_free(ref_bounds *b);

#endif
