/* SPDX-License-Identifier: MIT
 *
 * backward.c - the gradients, tangents and double backward of `attn run`. */
#include "backward.h"

#include <stdlib.h>

#include "cli/output/outputs.h"
#include "cli/output/shared_bias.h"
#include "testing/text/failure.h"

/* The library writes to memory of its own; the file receives the sum. */
static attn_status expand(backward_work *work, int t, attn_error *error)
{
    attn_output *slot = tensors_slot(&work->tensors, t);
    const attn_archive_tensor *bias = work->input->used[TENSOR(bias)].tensor;
    void *data;
    slot->dtype = tensors_compute(&work->tensors);
    slot->data = work->expanded = shared_bias_allocate(work->input, slot->dtype);
    return attn_archive_allocate(work->out, tensors_file_name(t), bias->dtype, bias->rank, bias->shape, &data, error);
}

attn_status backward_begin(backward_work *work, const attention_input *input, attn_archive *out, attn_tensors *forward,
                           const common_settings *common, attn_error *error)
{
    const attn_shape *s = &input->problem.shape;
    *work = (backward_work){.input = input, .out = out, .problem = input->problem};
    work->problem.outputs = (attn_outputs){0}; /* forward writes them */
    work->tensors = tensors_of_op(&input->tensors, work->problem.op);
    if (forward->lse.data == ATTN_LATER) {
        const int64_t batch = input->spec.packed ? 1 : s->batch;
        work->lse = need_memory(batch * s->heads_q * input->total_q, attn_dtype_size(tensors_compute(forward)));
        forward->lse.data = work->lse;
    }
    work->tensors.o = forward->o;
    work->tensors.lse = forward->lse;
    attn_status status = ATTN_OK;
    for (int t = 0; t < TENSORS && status == ATTN_OK; t++)
        if (shared_bias_has(input, &work->tensors, t)) status = expand(work, t, error);
    if (status == ATTN_OK) status = computation_begin(&work->computation, &work->problem, &work->tensors, common, error);
    return status == ATTN_OK ? outputs_add(out, input, work->computation.plan, &work->tensors, error) : status;
}

static void reduce_bias(const backward_work *work)
{
    const attn_archive_tensor *t = attn_archive_find(work->out, work->input->spec.op == SPEC_BACKWARD ? "dbias" : "second_bias");
    shared_bias_sum(work->input, tensors_compute(&work->tensors), work->expanded, t->dtype, (void *)(uintptr_t)t->data);
}

attn_status backward_run(const backward_work *work, const common_settings *common, attn_error *error)
{
    attn_status status = compute_backward(&work->computation, &work->problem, &work->tensors, common, error);
    if (status == ATTN_OK && work->expanded) reduce_bias(work);
    if (status == ATTN_OK) status = input_rotate_back(work->input, &work->tensors, error);
    return status;
}

void backward_end(backward_work *work)
{
    computation_end(&work->computation);
    free(work->expanded);
    free(work->lse);
}
