/* SPDX-License-Identifier: MIT
 *
 * backward.c - the gradients of `attn run --backward`. */
#include "backward.h"

#include <stdlib.h>

#include "check/element.h"
#include "failure.h"

attn_problem forward_of(const attn_problem *backward)
{
    attn_problem forward = *backward;
    forward.op = ATTN_FORWARD;
    forward.gradients = (attn_gradients){0};
    forward.want.lse = 1;
    return forward;
}

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
    const attn_tensor *bias = input->used[ROLE_BIAS].tensor;
    return bias && (int64_t)(bias->bytes / attn_dtype_size(bias->dtype)) != expanded_count(input);
}

/* What the gradient of an input tensor is called, and where the library writes it. */
static attn_status add_gradient(backward_work *work, const char *name, tensor_role role, attn_dtype dtype, void **data,
                                attn_error *error)
{
    const attn_tensor *t = work->input->used[role].tensor;
    return attn_tensors_allocate(work->out, name, dtype, t->rank, t->shape, data, error);
}

attn_status backward_begin(backward_work *work, const attention_input *input, attn_tensors *out, attn_args *args,
                           const common_settings *common, attn_error *error)
{
    *work = (backward_work){.input = input, .out = out};
    attn_problem problem = input->problem;
    const attn_gradients *g = &problem.gradients;
    const attn_dtype compute = problem_dtype(&input->spec) == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const struct {
        const char *name;
        int used;
        tensor_role role;
        attn_dtype dtype;
        void **data;
    } rows[] = {{"dq", 1, ROLE_Q, problem.q.dtype, &args->grad_q},
                {"dk", 1, ROLE_K, problem.k.dtype, &args->grad_k},
                {"dv", 1, ROLE_V, problem.v.dtype, &args->grad_v},
                {"dbias", g->bias, ROLE_BIAS, problem.bias.bias.dtype, &args->grad_bias},
                {"dslopes", g->slopes, ROLE_SLOPES, compute, &args->grad_slopes},
                {"dsink", g->sink, ROLE_SINK, compute, &args->grad_sink},
                {"dscale", g->scale, ROLE_SCALE, compute, &args->grad_scale}};
    attn_status status = ATTN_OK;
    for (size_t k = 0; k < sizeof rows / sizeof *rows && status == ATTN_OK; k++)
        if (rows[k].used) status = add_gradient(work, rows[k].name, rows[k].role, rows[k].dtype, rows[k].data, error);
    if (status != ATTN_OK) return status;

    problem.gradients.grad_q.dtype = problem.q.dtype;
    problem.gradients.grad_k.dtype = problem.k.dtype;
    problem.gradients.grad_v.dtype = problem.v.dtype;
    if (is_expanded(input)) {
        problem.gradients.grad_bias.dtype = compute;
        work->expanded = need_memory(expanded_count(input), attn_dtype_size(compute));
        args->grad_bias = work->expanded;
    }
    if (!args->lse) {
        const attn_shape *s = &problem.shape;
        const int64_t batch = problem.mask.packed ? 1 : s->batch;
        work->lse = need_memory(batch * s->heads_q * input->total_q, attn_dtype_size(compute));
        args->lse = work->lse;
    }
    problem.want = (attn_want){.lse_layout = problem.want.lse_layout}; /* forward writes the other outputs */
    return computation_begin(&work->computation, &problem, common, error);
}

/* dbias: the sum over the batch entries that share one entry of the bias. */
static void reduce_bias(const backward_work *work)
{
    const attention_input *input = work->input;
    const attn_tensor *t = attn_tensors_find(work->out, "dbias"), *bias = input->used[ROLE_BIAS].tensor;
    const int leading = bias->rank > 3 ? bias->rank - 3 : 0;
    int64_t entries = 1;
    for (int axis = 0; axis < leading; axis++) entries *= bias->shape[axis];
    const int64_t count = (int64_t)(t->bytes / attn_dtype_size(t->dtype)), each = entries ? count / entries : 0;
    const attn_dtype compute = problem_dtype(&input->spec) == ATTN_F64 ? ATTN_F64 : ATTN_F32;
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

attn_status backward_run(const backward_work *work, const attn_args *args, attn_error *error)
{
    attn_status status = computation_run(&work->computation, args, error);
    if (status == ATTN_OK && work->expanded) reduce_bias(work);
    return status;
}

void backward_end(backward_work *work)
{
    computation_end(&work->computation);
    free(work->expanded);
    free(work->lse);
}
