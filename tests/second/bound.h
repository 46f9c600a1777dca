/* SPDX-License-Identifier: MIT
 *
 * bound.h - how far a result may be from exact.  What a kernel computes is a sum of products; each carries the relative error of a
 * weight,
 *
 *      a_i u,   a_i = 8 + |lse_i| + max_j (sum_c |scale q_c k_jc| + |bias_ij| + |alibi_ij|)         u: the rounding unit
 *
 * (a score's error is an error of its weight; lse was rounded too) and those of its sums, which are below a_i u of the sum of
 * absolute values for lengths as small as here.  So a result's bound is u times the same formula over absolute values, with weight
 * (i, j) a_i times as large.
 */
#ifndef ATTN_TESTS_SECOND_BOUND_H
#define ATTN_TESTS_SECOND_BOUND_H

#include "attn_ref.h"

typedef struct bounds {
    double *tan_o, *tan_lse; /* [B][Hq][Sq][Dv], [B][Hq][Sq] */
} bounds;

/* Bounds in units of u.  t: the tangents of the inputs. */
void bounds_make(bounds *b, const ref_problem *p, const ref_tangents *t);
void bounds_free(bounds *b);

/* The largest error of `got` as a fraction of `bound` times u; not finite where one of them is wrongly so. */
double bound_fraction(const double *got, const double *exact, const double *bound, int64_t n, double u);

#endif
