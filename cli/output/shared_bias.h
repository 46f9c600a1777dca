/* SPDX-License-Identifier: MIT
 *
 * shared_bias.h - the gradient of a bias that broadcasts over some leading axes and not over others.  The library has such a bias
 * with an entry for each entry of the batch, and so its gradient; the file receives the sum. */
#ifndef ATTN_CLI_OUTPUT_SHARED_BIAS_H
#define ATTN_CLI_OUTPUT_SHARED_BIAS_H

#include "cli/input/input.h"

/* 1 if t is written by the operation of the input and is such a gradient: grad_bias or second_bias. */
int shared_bias_has(const attention_input *input, const attn_tensors *tensors, int t);

/* Memory for the gradient in the library, of the compute type; the caller frees it. */
void *shared_bias_allocate(const attention_input *input, attn_dtype compute);

/* The sum over the batch entries that share an entry of the bias; `to` has as many elements of type `dtype` as the bias. */
void shared_bias_sum(const attention_input *input, attn_dtype compute, const void *gradient, attn_dtype dtype, void *to);

#endif
