/* SPDX-License-Identifier: MIT
 *
 * backward.h - what `attn run` does beyond forward: gradients, tangents, second gradients, from their tensors in the output to the
 * work. */
#ifndef ATTN_CLI_RUN_BACKWARD_H
#define ATTN_CLI_RUN_BACKWARD_H

#include "cli/compute/compute.h"
#include "cli/input/input.h"

typedef struct backward_work {
    computation computation;
    attn_problem problem; /* its own */
    attn_tensors tensors; /* and where they are */
    void *lse;            /* where the output has none */
    void *expanded;       /* dbias or second_bias of each batch entry, where the bias broadcasts over some leading axes and not over
                             others */
    const attention_input *input;
    attn_archive *out;
} backward_work;

/*
 * Adds dq, dk, dv and the gradients of bias, slopes, sink and scale, where the input has these tensors, to `out`, in the shapes of
 * what they are the gradients of; or tan_o and tan_lse; or second_do, second_dlse, second_q, second_k, second_v and second_bias.
 * forward has the memory of o, and of lse where `out` has it; else it gets some.  Ends in backward_end, also after a failure.
 */
attn_status backward_begin(backward_work *work, const attention_input *input, attn_archive *out, attn_tensors *forward,
                           const common_settings *common, attn_error *error);

/* After forward has run. */
attn_status backward_run(const backward_work *work, const common_settings *common, attn_error *error);
void backward_end(backward_work *work);

#endif
