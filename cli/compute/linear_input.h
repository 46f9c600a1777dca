/* SPDX-License-Identifier: MIT
 *
 * linear_input.h - from the tensors of a file to a problem of linear attention, whole or of the rows of one process (share.h). */
#ifndef ATTN_CLI_COMPUTE_LINEAR_INPUT_H
#define ATTN_CLI_COMPUTE_LINEAR_INPUT_H

#include "cli/base/options.h"
#include "cli/input/share.h"
#include "testing/problem/linear_tensors.h"

typedef struct linear_input {
    const attention_input *input;
    problem_spec spec; /* the problem as it is printed */
    attn_linear_problem problem;
    attn_linear_tensors tensors;              /* of forward and backward; outputs are ATTN_LATER */
    const attn_archive_tensor *used[LINEARS]; /* as the file has them */
    void *owned[16];
    int owned_count;
} linear_input;

/* 1 if the options select linear attention: --linear, --phi or --rule, even --rule=add. */
int linear_is_requested(const problem_spec *spec);
/* The options that softmax and linear attention share, for input_load. */
problem_spec linear_plain_spec(const problem_spec *spec);

/* The problem of an input that is loaded, with the tensors that linear attention alone reads.  state: final_state and final_sum are
 * written, too.  Release with linear_input_free, also after a failure. */
attn_status linear_input_read(linear_input *l, const attention_input *input, const input_settings *settings, int state,
                              attn_error *error);
void linear_input_free(linear_input *l);

/* Memory that linear_input_free frees. */
void *linear_input_own(linear_input *l, int64_t count, size_t size);
/* f64, or f32 for all others. */
attn_dtype linear_compute(const linear_input *l);

/* The shape in files of tensor t, which the library has in this size.  Returns the rank. */
int linear_shape(const linear_input *l, int t, const int64_t size[4], int64_t shape[ATTN_MAX_RANK]);
/* That of the weights, in files and in the library. */
int linear_weights_shape(const linear_input *l, int64_t size[4], int64_t shape[ATTN_MAX_RANK]);

/* How tensor t, of this shape in files, is divided among processes; 0 if all of them have all of it. */
int linear_lay(const linear_input *l, int t, int rank, const int64_t *shape, attn_dtype dtype, share_layout *layout);

/* The weights are the outputs with the identity as values and without a state: o is the sum of the values times these.  Tensors of
 * that forward pass over *problem, which is set, too: with the rows that the process has.  The identity is in *memory, which the
 * caller frees. */
attn_linear_tensors linear_for_weights(const linear_input *l, void *weights, attn_linear_problem *problem, void **memory);

#endif
