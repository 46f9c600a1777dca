/* SPDX-License-Identifier: MIT
 *
 * backward.c - the gradients, tangents and second gradients of `attn run`. */
#include "backward.h"

#include <stdlib.h>

#include "check/element.h"
#include "failure.h"

attn_problem forward_of(const attn_problem *beyond)
{
    attn_problem forward = *beyond;
    forward.op = ATTN_FORWARD;
    forward.gradients = (attn_gradients){0};
    forward.tangents = (attn_tangents){0};
    forward.second = (attn_second){0};
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

/* An output: its name, whose shape it has (ROLES: that of o; ROLES + 1: that of lse), and where the library writes it. */
typedef struct result_row {
    const char *name;
    spec_op op;
    int used;
    int role;
    attn_dtype dtype;
    void **data;
} result_row;

static attn_status add_result(backward_work *work, const result_row *row, attn_error *error)
{
    const attention_input *input = work->input;
    int64_t shape[ATTN_MAX_RANK];
    if (row->role < ROLES) {
        const attn_tensor *t = input->used[row->role].tensor;
        return attn_tensors_allocate(work->out, row->name, row->dtype, t->rank, t->shape, row->data, error);
    }
    const output_axes axes = row->role == ROLES ? OUTPUT_LIKE_Q : OUTPUT_BY_ROW;
    const int rank = input_output_shape(input, axes, input->spec.shape.dim_v, shape);
    return attn_tensors_allocate(work->out, row->name, row->dtype, rank, shape, row->data, error);
}

attn_status backward_begin(backward_work *work, const attention_input *input, attn_tensors *out, attn_args *args,
                           const common_settings *common, attn_error *error)
{
    *work = (backward_work){.input = input, .out = out};
    attn_problem problem = input->problem;
    const attn_gradients *g = &problem.gradients;
    const attn_dtype stored = problem_dtype(&input->spec), compute = stored == ATTN_F64 ? ATTN_F64 : ATTN_F32;
    const attn_dtype q = problem.q.dtype, k = problem.k.dtype, v = problem.v.dtype, bias = problem.bias.bias.dtype;
    enum { LIKE_O = ROLES, LIKE_LSE };
    const result_row rows[] = {
        {"dq", SPEC_BACKWARD, 1, ROLE_Q, q, &args->grad_q},
        {"dk", SPEC_BACKWARD, 1, ROLE_K, k, &args->grad_k},
        {"dv", SPEC_BACKWARD, 1, ROLE_V, v, &args->grad_v},
        {"dbias", SPEC_BACKWARD, g->bias, ROLE_BIAS, bias, &args->grad_bias},
        {"dslopes", SPEC_BACKWARD, g->slopes, ROLE_SLOPES, compute, &args->grad_slopes},
        {"dbias_table", SPEC_BACKWARD, problem.gradients.bias_table, ROLE_BIAS_TABLE, compute, &args->grad_bias_table},
        {"drelative_keys", SPEC_BACKWARD, g->relative && problem.relative.keys, ROLE_RELATIVE_KEYS, compute,
         &args->grad_relative_keys},
        {"drelative_values", SPEC_BACKWARD, g->relative && problem.relative.values, ROLE_RELATIVE_VALUES, compute,
         &args->grad_relative_values},
        {"drelative_u", SPEC_BACKWARD, g->relative && problem.relative.u, ROLE_RELATIVE_U, compute, &args->grad_relative_u},
        {"drelative_v", SPEC_BACKWARD, g->relative && problem.relative.v, ROLE_RELATIVE_V, compute, &args->grad_relative_v},
        {"dsink", SPEC_BACKWARD, g->sink, ROLE_SINK, compute, &args->grad_sink},
        {"dscale", SPEC_BACKWARD, g->scale, ROLE_SCALE, compute, &args->grad_scale},
        {"dw", SPEC_BACKWARD, g->w, ROLE_W, problem.score.w.dtype, &args->grad_w},
        {"tan_o", SPEC_JVP, 1, LIKE_O, stored, &args->tan_o},
        {"tan_lse", SPEC_JVP, 1, LIKE_LSE, compute, &args->tan_lse},
        {"second_do", SPEC_DOUBLE_BACKWARD, 1, LIKE_O, stored, &args->second_grad_o},
        {"second_dlse", SPEC_DOUBLE_BACKWARD, 1, LIKE_LSE, compute, &args->second_grad_lse},
        {"second_q", SPEC_DOUBLE_BACKWARD, 1, ROLE_Q, q, &args->second_q},
        {"second_k", SPEC_DOUBLE_BACKWARD, 1, ROLE_K, k, &args->second_k},
        {"second_v", SPEC_DOUBLE_BACKWARD, 1, ROLE_V, v, &args->second_v},
        {"second_bias", SPEC_DOUBLE_BACKWARD, problem.second.bias, ROLE_BIAS, bias, &args->second_bias}};
    attn_status status = ATTN_OK;
    for (size_t n = 0; n < sizeof rows / sizeof *rows && status == ATTN_OK; n++)
        if (rows[n].used && (int)rows[n].op == input->spec.op) status = add_result(work, &rows[n], error);
    if (status != ATTN_OK) return status;

    problem.gradients.grad_o.dtype = problem.tangents.tan_o.dtype = problem.second.second_grad_o.dtype = stored;
    problem.gradients.grad_q.dtype = problem.second.second_q.dtype = q;
    problem.gradients.grad_k.dtype = problem.second.second_k.dtype = k;
    problem.gradients.grad_v.dtype = problem.second.second_v.dtype = v;
    if (is_expanded(input) && (g->bias || problem.second.bias)) {
        problem.gradients.grad_bias.dtype = problem.second.second_bias.dtype = compute;
        work->expanded = need_memory(expanded_count(input), attn_dtype_size(compute));
        args->grad_bias = args->second_bias = work->expanded;
    }
    if (!args->lse) {
        const attn_shape *s = &problem.shape;
        const int64_t batch = problem.mask.packed ? 1 : s->batch;
        work->lse = need_memory(batch * s->heads_q * input->total_q, attn_dtype_size(compute));
        args->lse = work->lse;
    }
    problem.want = (attn_want){.lse_layout = problem.want.lse_layout}; /* forward writes the other outputs */
    work->problem = problem;
    return computation_begin(&work->computation, &problem, common, error);
}

/* dbias or second_bias: the sum over the batch entries that share one entry of the bias. */
static void reduce_bias(const backward_work *work)
{
    const attention_input *input = work->input;
    const attn_tensor *t = attn_tensors_find(work->out, input->spec.op == SPEC_BACKWARD ? "dbias" : "second_bias"),
                      *bias = input->used[ROLE_BIAS].tensor;
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

attn_status backward_run(const backward_work *work, const attn_args *args, const common_settings *common, attn_error *error)
{
    attn_status status = compute_backward(&work->computation, &work->problem, args, common, error);
    if (status == ATTN_OK && work->expanded) reduce_bias(work);
    if (status == ATTN_OK) status = input_rotate_back(work->input, &work->problem, args, error);
    return status;
}

void backward_end(backward_work *work)
{
    computation_end(&work->computation);
    free(work->expanded);
    free(work->lse);
}
