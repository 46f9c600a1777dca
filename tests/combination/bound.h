/* SPDX-License-Identifier: MIT
 *
 * bound.h - how far a result may be from exact.  Forward and backward: the bounds of ref/ (attn_bound.h).  Forward mode and the
 * second order: as there, but closer, since chains are short.  What a kernel computes is a sum of products of a weight, a tangent
 * of a score and, in the second order, a gradient of a weight, and each of these factors carries the relative error
 *
 *      a_i u,   a_i = 8 + |lse_i| + max_j ((1 + 2/C) sum_c |scale q_c k_jc| + the sizes of the biases)      u: the rounding unit
 *
 * which is above that of the sums too for lengths as small as here.  So a result's bound is u times the same formula over absolute
 * values, with term (i, j) 2 a_i times as large in forward mode and 3 a_i times in the second order.
 */
#ifndef ATTN_TESTS_COMBINATION_BOUND_H
#define ATTN_TESTS_COMBINATION_BOUND_H

#include "attn/attn.h"
#include "attn_bound.h"

/* The modifier of combinations: f(s) <= |s| + MODIFIER_SHIFT, and its slope, at most 1, has a relative error 2 / MODIFIER_BEND
 * times that of s, as that of the softcap. */
#define MODIFIER_BEND  6.0
#define MODIFIER_SHIFT 1.0

typedef struct bounds {
    double *tan_o, *tan_lse;  /* [B][Hq][Sq][Dv], [B][Hq][Sq] */
    double *q, *k, *v, *bias; /* of the second order; like dQ, dK, dV and dS */
} bounds;

/* Of forward mode, and of the second order where s->dO is given, in units of u. */
void bounds_make(bounds *b, const ref_problem *p, const ref_second *s);
void bounds_free(bounds *b);
/* The same by ref/, where O is stored in fewer bits. */
bounds bounds_of_stored(const ref_problem *p, const ref_second *s, attn_dtype compute, double u, double storage);

/* Of forward and backward in units of u; ref_bounds_free frees them.  s: dO, and dlse, which may be NULL.  storage: the rounding
 * unit of what O is stored as, which backward reads back (0: no less than the compute type's). */
ref_bounds bounds_of_forward(const ref_problem *p, attn_dtype compute, double u);
ref_bounds bounds_of_backward(const ref_problem *p, const ref_second *s, attn_dtype compute, double u, double storage);

/* The largest error of `got` as a fraction of `bound` times u; not finite where one of them is wrongly so. */
double bound_fraction(const double *got, const double *exact, const double *bound, int64_t n, double u);

#endif
