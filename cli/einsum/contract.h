/* SPDX-License-Identifier: MIT
 *
 * contract.h - computing a contraction in f64. */
#ifndef ATTN_CLI_EINSUM_CONTRACT_H
#define ATTN_CLI_EINSUM_CONTRACT_H

#include "contraction.h"

/*
 * The contraction of tensors that are dense in the order of their indices, in memory from need_memory.  Tensors are contracted from
 * left to right, two at a time: an index that no later tensor and no output has is summed at once, as the inner index of a product
 * of the library (attn_product in f64, whose bits do not depend on the number of threads).
 *
 * ATTN_ERR_UNSUPPORTED if a tensor on the way is too large; ATTN_ERR_MEMORY.
 */
attn_status contract(const contraction *c, const double *const *tensors, const attn_options *options, double **result,
                     attn_error *error);

/* Adds the gradient of tensor number n, from that of the output, to `gradient`, which has the shape of the tensor. */
attn_status contract_backward(const contraction *c, int n, const double *const *tensors, const double *grad_output,
                              const attn_options *options, double *gradient, attn_error *error);

#endif
