/* SPDX-License-Identifier: MIT
 *
 * backward.h - what `attn run` does beyond forward: computes gradients, tangents or double backward into the output.
 */
#ifndef ATTN_CLI_RUN_BACKWARD_H
#define ATTN_CLI_RUN_BACKWARD_H

#include "cli/compute/compute.h"
#include "cli/input/input.h"

typedef struct backward_work {
    computation computation;
    attn_problem problem; /* of this operation */
    attn_tensors tensors; /* of this operation */
    void *lse;            /* if the output has none */
    void *expanded;       /* dbias or second_bias of each batch entry, if the bias broadcasts over some leading axes and not over
                             others */
    const attention_input *input;
    attn_archive *out;
} backward_work;

/*
 * Adds to `out` dq, dk, dv and the gradients of bias, slopes, sink and scale, if the input has these tensors, each in the shape of
 * its tensor; or tan_o and tan_lse; or second_do, second_dlse, second_q, second_k, second_v and second_bias.  forward has the
 * memory of o, and of lse if `out` has it; otherwise lse is allocated here.  Release with backward_end, also after a failure.
 */
attn_status backward_begin(backward_work *work, const attention_input *input, attn_archive *out, attn_tensors *forward,
                           const common_settings *common, attn_error *error);

/* After forward has run. */
attn_status backward_run(const backward_work *work, const common_settings *common, attn_error *error);
void backward_end(backward_work *work);

#endif
