/* SPDX-License-Identifier: MIT
 *
 * bound.h - error bounds of results.  Forward and backward: the bounds of ref/ (attn_bound.h).  Forward mode and double backward:
 * tighter than there, since sums are short.  A kernel computes sums of products of a weight, a tangent of a score and, in the
 * double backward, a gradient of a weight, and each of these factors carries the relative error
 *
 *      a_i u,   a_i = 8 + |lse_i| + max_j ((1 + 2/C) sum_c |scale q_c k_jc| + magnitudes of the biases)     u: the unit roundoff
 *
 * which also exceeds the error of summation at the lengths used here.  So the bound of a result is u times its formula over
 * absolute values, with term (i, j) multiplied by 2 a_i in forward mode and by 3 a_i in double backward.
 */
#ifndef ATTN_TESTS_COMBINATION_BOUND_H
#define ATTN_TESTS_COMBINATION_BOUND_H

#include "attn/attn.h"
#include "attn_bound.h"

/* The modifier of combinations: f(s) <= |s| + MODIFIER_SHIFT; its slope is at most 1, with a relative error 2 / MODIFIER_CURVATURE
 * times the error of s, as for the softcap. */
#define MODIFIER_CURVATURE 6.0
#define MODIFIER_SHIFT     1.0

typedef struct bounds {
    double *tan_o, *tan_lse;  /* [B][Hq][Sq][Dv], [B][Hq][Sq] */
    double *q, *k, *v, *bias; /* of double backward; shapes of dQ, dK, dV and dS */
} bounds;

/* Bounds of forward mode, and of double backward if s->dO is given, in units of u. */
void bounds_make(bounds *b, const ref_problem *p, const ref_gradgrad *s);
void bounds_free(bounds *b);
/* The same by ref/, for O stored in a narrower type. */
bounds bounds_of_stored(const ref_problem *p, const ref_gradgrad *s, attn_dtype compute, double u, double storage);

/* Bounds of forward and backward in units of u; free with ref_bounds_free.  s: dO, and dlse, which may be NULL.  storage: the unit
 * roundoff of O's storage type, as backward reads O back (0: O is stored in the compute type). */
ref_bounds bounds_of_forward(const ref_problem *p, attn_dtype compute, double u);
ref_bounds bounds_of_backward(const ref_problem *p, const ref_gradgrad *s, attn_dtype compute, double u, double storage);

/* The largest error of `got` as a fraction of `bound` times u; INFINITY for an error that is not finite or has bound 0. */
double bound_fraction(const double *got, const double *exact, const double *bound, int64_t n, double u);

#endif
