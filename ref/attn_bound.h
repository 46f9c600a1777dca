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
 * (for other scores ref_score_roundings for D, and ref_score_size for the sum; the derivative of tanh counts as 1),
 *
 * which counts every chain of roundings once: of a score, whose error is one of its weight and of the cap's derivatives, of the
 * gradient of a weight, of the sums over keys and queries, and of lse.  So a result's bound is the same formula over absolute
 * values, with term (i, j) 2 a_i u times as large in forward mode and backward, and 3 a_i u times in the second order.  Weights
 * below the smallest normal number may be lost whole.
 */
#ifndef ATTN_BOUND_H
#define ATTN_BOUND_H

#include "attn_ref.h"

/* What a score is made of before the scale, in absolute values: sum_c |q_c k_c|, that over |q| |k| for a cosine, and (|q| + |k|)^2
 * of each channel for a distance, whose square is expanded; sum_c |w_c| for an additive score.  No others. */
double ref_score_size(const ref_problem *p, const double *q, const double *k);
/* How many roundings one of its terms goes through, with two for the scale not counted: D; 2 D + 8, with those of the lengths; or D
 * + 16, with those of tanh.
 */
int64_t ref_score_roundings(const ref_problem *p);

/* The arithmetic of a kernel. */
typedef struct ref_arithmetic {
    double unit;          /* u: half the distance from 1 to the next number */
    double normal;        /* the smallest normal number */
    double denormal;      /* the smallest number above 0 */
    const double *O_lost; /* [B][Hq][Sq][Dv]: what O lost when it was stored in fewer bits; NULL: nothing */
} ref_arithmetic;

/* Bounds of the operations' outputs, each like the output itself; NULL where memory was out. */
typedef struct ref_bounds {
    double *O, *lse;               /* of ref_jvp's outputs, and of the second order's for dO and dlse */
    double *Q, *K, *V, *S;         /* of backward's and of the second order's */
    double *scale, *slopes, *sink; /* of backward's: [Hq], [B][Hq], [Hq] */
    double *W;                     /* of backward's: additive, one row for all heads */
} ref_bounds;

/* From the inputs in `s` (its outputs are not used): backward reads dO and dlse, forward mode the tangents, the second order all of
 * them.  Return 0 where memory is out. */
int ref_bound_backward(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a);
int ref_bound_jvp(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a);
int ref_bound_second(ref_bounds *b, const ref_problem *p, const ref_second *s, const ref_arithmetic *a);
void ref_bounds_free(ref_bounds *b);

#endif
