/* SPDX-License-Identifier: MIT
 * convolution.h - the rules of a short causal convolution. */
#ifndef ATTN_PLAN_CONVOLUTION_H
#define ATTN_PLAN_CONVOLUTION_H

#include "../walk/convolution/convolution.h"
#include "sequences.h"
#include "tensors.h"

extern const attn_tensor_family attn_convolution_family;

/* The caller's problem and tensors, checked; list has the tensors that are present. */
attn_status attn_convolution_resolve(const attn_convolution_problem *problem, const attn_convolution_tensors *tensors,
                                     attn_convolution_resolved *resolved, attn_planned_tensor *list, int *count, attn_error *error);
/* The addresses of the tensors, and what they say: sequences and rows of states. */
attn_status attn_convolution_bind(const attn_convolution_resolved *resolved, const attn_planned_tensor *list, int count,
                                  const attn_convolution_tensors *tensors, attn_convolution_args *args, attn_error *error);

attn_state_lists attn_convolution_lists(const attn_convolution_resolved *resolved, const attn_convolution_args *args);

#endif
