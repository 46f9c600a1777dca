/* SPDX-License-Identifier: MIT
 * steps.h - helpers shared by the gradient flow and its verification. */
#ifndef ATTN_ANALYSIS_STEPS_H
#define ATTN_ANALYSIS_STEPS_H

#include "../common/options.h"
#include "attn/analysis.h"

/* Element counts of a problem's tensors; rows: of lse, pairs: of the weights. */
typedef struct analysis_sizes {
    int64_t rows, pairs, q, k, v, o;
} analysis_sizes;

/* Checks that the problem is valid and supported by the analysis.  *p and *t: copies without outputs but o; *o: the options. */
attn_status attn_analysis_check(const attn_problem *problem, const attn_tensors *tensors, const attn_options *options,
                                attn_problem *p, attn_tensors *t, attn_options *o, analysis_sizes *sizes, attn_error *error);
attn_status attn_analysis_check_dense(const attn_tensors *tensors, attn_error *error);

/* Memory for n doubles, at least one; NULL if memory is short. */
double *attn_analysis_acquire(const attn_options *options, int64_t n);

/* Forward into tensors->o, lse and optionally weights; backward of tensors->grad_o (absent: o) into three gradients.  Both are
 * planned, and everything they can reject is checked, before either runs. */
typedef struct analysis_passes {
    attn_problem forward_problem;
    attn_tensors forward, backward;
    execution run_forward, run_backward;
} analysis_passes;

/* Plans forward; lse [rows], weights [pairs] or NULL.  Call attn_analysis_end afterwards, even on failure. */
attn_status attn_analysis_begin(analysis_passes *passes, const attn_problem *problem, const attn_tensors *tensors, double *lse,
                                double *weights, const attn_options *options, attn_error *error);
/* Plans backward. */
attn_status attn_analysis_begin_backward(analysis_passes *passes, const attn_tensors *tensors, double *dq, double *dk, double *dv,
                                         const attn_options *options, attn_error *error);
void attn_analysis_end(analysis_passes *passes, const attn_options *options);

#endif
