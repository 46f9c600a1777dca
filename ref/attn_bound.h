/* SPDX-License-Identifier: MIT
 *
 * attn_bound.h - how far a gradient, a tangent or a second gradient may be from ref/'s.
 *
 * Each of them is a sum of products: of a weight, a tangent of a score and, in the second order, a gradient of a weight.  Each of
 * these factors carries a relative error of at most
 *
 *      a_i u,   a_i = 8 + Dv + Skv + Sq (of all heads of a group) + |lse_i| + max_j e_ij       u: the rounding unit
 *      e_ij         = (D + 2) (1 + 2/C) sum_c |scale q_c k_jc| + |bias_ij| + |alibi_ij|        C: the softcap, or infinity
 *
 * (for other scores ref_score_roundings for D, and ref_score_size for the sum; the derivative of tanh counts as 1; the number of a
 * bias by distance is one more size; where weights of scores or tables have gradients, the queries of all heads and batch entries
 * and the rows of the table are added to a_i),
 *
 * which counts every chain of roundings once: of a score, whose error is one of its weight and of the cap's derivatives, of the
 * gradient of a weight, of the sums over keys and queries, and of lse.  So a result's bound is the same formula over absolute
 * values, with term (i, j) 2 a_i u times as large in forward mode and backward, and 3 a_i u times in the second order.  Weights
 * below the smallest normal number may be lost whole.
 *
 * Where kernels take what is below `flushed` for 0, a score may lose scale (sum_c |q_c| + |k_jc| + 1) flushed by that, and dO . v
 * the same with their sizes: over u, these are added to e_ij and to |dO| . |v|.
 *
 * Weights that are a function of their own score alone: the sigmoid's have the error of the score, and their gradient no mean to
 * take off.  ReLU's error is the score's own, so a weight counts as (1 + |score|) over the keys that the query sees; and where the
 * score is nearer to 0 than its error, its gradient may be there or not.
 */
#ifndef ATTN_BOUND_H
#define ATTN_BOUND_H

#include "attn_ref.h"

/* The problem in absolute values (0 where memory is out): its keys are negative for distances, so that differences are sums.
 * ref_sizes_free frees its arrays. */
int ref_sizes_make(ref_problem *sizes, const ref_problem *p);
void ref_sizes_free(ref_problem *sizes);

/* What a score is made of before the scale: the loop of its kind over absolute values.  A cosine's is over |q| |k|; a distance's
 * (|q| + |k|)^2 of each channel, whose square is expanded; of an additive score sum_c |w_c|, and what q + b loses where there is a
 * b. */
double ref_score_size(const ref_problem *sizes, int64_t b, int64_t h, int64_t i, int64_t j);
/* How many roundings one of its terms goes through, with two for the scale not counted:
 *
 *      dot         D, and two with relative keys: q + u is rounded, and so is the sum of both products
 *      general     D of w^T q, Dk of its product with k, and w may be rounded
 *      metric      D of w q, as many as w has rows, D, and w twice
 *      cosine      2 D + 8, with those of the lengths; distance the same
 *      additive    D + 16, with those of tanh
 */
int64_t ref_score_roundings(const ref_problem *p);
/* What dx, the size of a gradient of a raw score, adds to those of all that it is made of; dW may not be NULL where there is W. */
void ref_gradient_size(const ref_problem *sizes, const ref_gradients *G, int64_t b, int64_t h, int64_t i, int64_t j, double dx);

/* The arithmetic of a kernel. */
typedef struct ref_arithmetic {
    double unit;     /* u: half the distance from 1 to the next number */
    double normal;   /* the smallest normal number */
    double denormal; /* the smallest number above 0 */
    double flushed;  /* below this, what a product with a query, a key, a value or dO takes and gives counts as 0; 0: nothing */
    const double *O_lost; /* [B][Hq][Sq][Dv]: what O lost when it was stored in fewer bits; NULL: nothing */
    /* Of ref_problem.modify: |f(s)| <= |s| + shift, and an error of s is one of its slope, relative, of `bend` times that. */
    double modifier_bend, modifier_shift;
} ref_arithmetic;

/* Bounds of the operations' outputs, each like the output itself; NULL where memory was out. */
typedef struct ref_bounds {
    double *O, *lse;               /* of forward's and of ref_jvp's outputs, and of the second order's for dO and dlse */
    double *Q, *K, *V, *S;         /* of backward's and of the second order's */
    double *scale, *slopes, *sink; /* of backward's: [Hq], [B][Hq], [Hq] */
    double *W, *relative_keys, *relative_values, *relative_u, *relative_v, *bias_table; /* of backward's: like these */
} ref_bounds;

/* From the inputs in `s` (its outputs are not used): backward reads dO and dlse, forward mode the tangents, the second order all of
 * them.  Return 0 where memory is out. */
int ref_bound_forward(ref_bounds *b, const ref_problem *p, const ref_arithmetic *a);
int ref_bound_backward(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a);
int ref_bound_jvp(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a);
int ref_bound_second(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a);
void ref_bounds_free(ref_bounds *b);

#endif
