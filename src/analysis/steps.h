/* SPDX-License-Identifier: MIT
 * steps.h - what the gradient flow and its verification share. */
#ifndef ATTN_ANALYSIS_STEPS_H
#define ATTN_ANALYSIS_STEPS_H

#include "../common/options.h"
#include "attn/analysis.h"

/* Elements of the tensors of a problem. */
typedef struct analysis_sizes {
    int64_t rows, pairs, q, k, v, o;
} analysis_sizes;

/* That the problem is one that the analysis takes, and valid; *p and *t are copies, plain, and *o those of options. */
attn_status attn_analysis_check(const attn_problem *problem, const attn_tensors *tensors, const attn_options *options,
                                attn_problem *p, attn_tensors *t, attn_options *o, analysis_sizes *sizes, attn_error *error);
attn_status attn_analysis_check_dense(const attn_tensors *tensors, attn_error *error);

/* Memory of n numbers, one at least; NULL where there is none. */
double *attn_analysis_acquire(const attn_options *options, int64_t n);

/* Forward into tensors->o and lse, and on request weights; backward of tensors->grad_o (not there: o) into three gradients.  Both
 * are planned, and all that they can reject is known, before one of them runs. */
typedef struct analysis_passes {
    attn_problem forward_problem;
    attn_tensors forward, backward;
    execution run_forward, run_backward;
} analysis_passes;

/* Plans forward; lse [rows], weights [pairs] or NULL.  attn_analysis_end follows, also if it fails. */
attn_status attn_analysis_begin(analysis_passes *passes, const attn_problem *problem, const attn_tensors *tensors, double *lse,
                                double *weights, const attn_options *options, attn_error *error);
/* Plans backward. */
attn_status attn_analysis_begin_backward(analysis_passes *passes, const attn_tensors *tensors, double *dq, double *dk, double *dv,
                                         const attn_options *options, attn_error *error);
void attn_analysis_end(analysis_passes *passes, const attn_options *options);

#endif
