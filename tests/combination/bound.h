/* SPDX-License-Identifier: MIT
 *
 * bound.h - how far a result may be from exact.  What a kernel computes is a sum of products: of a weight, a tangent of a score
 * and, in the second order, a gradient of a weight.  Each of these factors carries the relative error
 *
 *      a_i u,   a_i = 8 + |lse_i| + max_j ((1 + 2/C) sum_c |scale q_c k_jc| + the sizes of the biases)      u: the rounding unit
 *
 * (a score's error is an error of its weight and, with a softcap C, of the derivatives of the cap; lse was rounded too), which is
 * above that of the sums too for lengths as small as here.  So a result's bound is u times the same formula over absolute values,
 * with term (i, j) 2 a_i times as large in forward mode and backward and 3 a_i times in the second order.
 *
 * A score kind's size is its own loop over absolute values, and so are its gradients.
 */
#ifndef ATTN_TESTS_COMBINATION_BOUND_H
#define ATTN_TESTS_COMBINATION_BOUND_H

#include "attn_ref.h"

/* The modifier of combinations: f(s) <= |s| + MODIFIER_SHIFT, and its slope, at most 1, has a relative error 2 / MODIFIER_BEND
 * times that of s, as that of the softcap. */
#define MODIFIER_BEND  6.0
#define MODIFIER_SHIFT 1.0

typedef struct bounds {
    double *o, *lse;               /* of forward: [B][Hq][Sq][Dv], [B][Hq][Sq] */
    double *tan_o, *tan_lse;       /* [B][Hq][Sq][Dv], [B][Hq][Sq] */
    double *q, *k, *v, *bias;      /* of backward, or of the second order where dO is given; like dQ, dK, dV and dS */
    double *scale, *slopes, *sink; /* of backward: [Hq], [B][Hq], [Hq] */
    double *w;                     /* of backward: like W */
    double *relative_keys, *relative_values, *relative_u, *relative_v; /* of backward: like these */
    double *bias_table;                                                /* of backward: like it */
} bounds;

/* Bounds in units of u.  s: the inputs; dO may be NULL. */
void bounds_make(bounds *b, const ref_problem *p, const ref_second *s);
/* The same for forward and backward, where a_i counts every rounding: 8 + |lse_i| + Dv + Skv + Sq (of all heads of a group; of all
 * rows, for w), and the maximum above D + 2 times (with w, the sizes of w too).  s: dO, and dlse, which may be NULL.  storage: the
 * rounding unit of what O is stored as, in units of u (0: no more than u); backward reads O back. */
void bounds_make_forward(bounds *b, const ref_problem *p);
void bounds_make_backward(bounds *b, const ref_problem *p, const ref_second *s, double storage);
void bounds_free(bounds *b);

/* The largest error of `got` as a fraction of `bound` times u; not finite where one of them is wrongly so. */
double bound_fraction(const double *got, const double *exact, const double *bound, int64_t n, double u);

#endif
