/* SPDX-License-Identifier: MIT
 * steps.h - what the gradient flow and its verification share. */
#ifndef ATTN_ANALYSIS_STEPS_H
#define ATTN_ANALYSIS_STEPS_H

#include "attn/analysis.h"

/* Elements of the tensors of a problem. */
typedef struct analysis_sizes {
    int64_t rows, pairs, q, k, v, o;
} analysis_sizes;

/* That the problem is one that the analysis takes, and valid; *p and *t are copies, plain. */
attn_status attn_analysis_check(const attn_problem *problem, const attn_tensors *tensors, attn_problem *p, attn_tensors *t,
                                analysis_sizes *sizes, attn_error *error);
/* Memory of n numbers, one at least; NULL where there is none. */
double *attn_analysis_room(int64_t n);
attn_status attn_analysis_check_dense(const attn_tensors *tensors, attn_error *error);
/* Without outputs but o. */
void attn_analysis_plain(attn_problem *p, attn_tensors *t);

/* forward into tensors->o and lse, then backward of dO (NULL: O) into the three gradients. */
attn_status attn_analysis_backward(const attn_problem *problem, const attn_tensors *tensors, double *lse, double *dq, double *dk,
                                   double *dv, attn_error *error);

#endif
