/* SPDX-License-Identifier: MIT
 *
 * backward.c - the gradients, tangents and double backward of `attn run`. */
#include "backward.h"

#include <stdlib.h>

#include "cli/output/outputs.h"
#include "testing/memory/element.h"
#include "testing/text/failure.h"

/* Elements of the bias as the library sees it: one batch entry, or all of them. */
static int64_t expanded_count(const attention_input *input)
{
    const attn_shape *s = &input->problem.shape;
    const int64_t size[4] = {s->batch, s->heads_q, s->len_q, s->len_kv};
    int64_t count = 1;
    for (int axis = 0; axis < 4; axis++)
        if (!(input->spec.bias_one >> axis & 1)) count *= size[axis];
    return count;
}

static int is_expanded(const attention_input *input)
{
    const attn_archive_tensor *bias = input->used[TENSOR(bias)].tensor;
    return bias && (int64_t)(bias->bytes / attn_dtype_size(bias->dtype)) != expanded_count(input);
}

/* 1 if t is the gradient of a bias that has more elements in the library than in the file. */
static int takes_expanded(const backward_work *work, int t)
{
    return tensors_writes(&work->tensors, work->problem.op, t) && tensors_about(t)->gradient_of == TENSOR(bias) &&
           is_expanded(work->input);
}

/* The library writes to memory of its own; the file receives the sum. */
static attn_status expand(backward_work *work, int t, attn_error *error)
{
    attn_output *slot = tensors_slot(&work->tensors, t);
    const attn_archive_tensor *bias = work->input->used[TENSOR(bias)].tensor;
    void *data;
    slot->dtype = tensors_compute(&work->tensors);
    slot->data = work->expanded = need_memory(expanded_count(work->input), attn_dtype_size(slot->dtype));
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
        if (takes_expanded(work, t)) status = expand(work, t, error);
    if (status == ATTN_OK) status = computation_begin(&work->computation, &work->problem, &work->tensors, common, error);
    return status == ATTN_OK ? outputs_add(out, input, work->computation.plan, &work->tensors, error) : status;
}

/* dbias or second_bias: the sum over the batch entries that share one entry of the bias. */
static void reduce_bias(const backward_work *work)
{
    const attention_input *input = work->input;
    const attn_archive_tensor *t = attn_archive_find(work->out, input->spec.op == SPEC_BACKWARD ? "dbias" : "second_bias"),
                              *bias = input->used[TENSOR(bias)].tensor;
    const int leading = bias->rank > 3 ? bias->rank - 3 : 0;
    int64_t entries = 1;
    for (int axis = 0; axis < leading; axis++) entries *= bias->shape[axis];
    const int64_t count = (int64_t)(t->bytes / attn_dtype_size(t->dtype)), each = entries ? count / entries : 0;
    const attn_dtype compute = tensors_compute(&work->tensors);
    double *sum = need_memory(count, sizeof *sum);
    for (int64_t k = 0; k < count; k++) sum[k] = 0;
    for (int64_t b = 0; b < input->problem.shape.batch; b++) {
        const int64_t entry = input_entry_of(input, leading, bias->shape, b);
        for (int64_t k = 0; k < each; k++)
            sum[entry * each + k] +=
                element_read(compute, (const char *)work->expanded + (size_t)(b * each + k) * attn_dtype_size(compute));
    }
    for (int64_t k = 0; k < count; k++)
        element_write(t->dtype, (char *)(uintptr_t)t->data + (size_t)k * attn_dtype_size(t->dtype), sum[k]);
    free(sum);
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
