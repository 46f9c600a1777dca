/* SPDX-License-Identifier: MIT
 * aten.c - PyTorch's own operators for attention on a CPU, which F.scaled_dot_product_attention, compiled graphs and exported
 * programs call:
 *
 *      _scaled_dot_product_flash_attention_for_cpu(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool
 * is_causal=False, *, Tensor? attn_mask=None, float? scale=None) -> (Tensor output, Tensor logsumexp)
 *      _scaled_dot_product_flash_attention_for_cpu_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out,
 *          Tensor logsumexp, float dropout_p, bool is_causal, *, Tensor? attn_mask=None, float? scale=None)
 *          -> (Tensor grad_query, Tensor grad_key, Tensor grad_value)
 *
 * PyTorch calls them with four axes, equal head sizes and no dropout.  Strides of results are those that its functions for tensors
 * without data promise: the output is empty_like(query), logsumexp is [batch, heads, queries] stored as [batch, queries, heads],
 * and gradients are stored as [batch, tokens, heads, dim]. */
#include <string.h>

#include "shim.h"

int64_t aten_calls[2];

/* A mask of booleans says which keys are seen; another one is added. */
static int mask(call *c, const argument *a)
{
    view v = {0};
    if (!a->given) return 0;
    if (view_of(a->tensor, "attn_mask", &v, c->error)) return -1;
    return call_input(c, v.dtype == ATTN_BOOL ? TENSOR(mask) : TENSOR(bias), a);
}

/* query, key and value at t; dropout_p, is_causal, attn_mask and scale at o. */
static int inputs(call *c, attn_op op, const argument *t, const argument *o)
{
    c->problem.op = op;
    c->problem.dropout.probability = 0;
    if (o[0].real != 0)
        return call_fail(c, ATTN_ERR_UNSUPPORTED, "dropout_p is not 0; PyTorch calls this operator without dropout only");
    c->problem.mask.causal = (int)o[1].integer;
    if (o[3].given) {
        c->problem.score.scale_kind = ATTN_SCALE_VALUE;
        c->problem.score.scale = o[3].real;
    }
    for (int i = 0; i < 3; i++)
        if (call_input(c, TENSOR(q) + i, &t[i])) return -1;
    return mask(c, &o[2]) || call_sizes(c) ? -1 : 0;
}

/* Strides of empty_like(q): in the order of q's, dense; contiguous if q overlaps itself. */
static void strides_like(const view *q, const int64_t size[4], int64_t stride[4])
{
    int order[4] = {0, 1, 2, 3}; /* largest stride first */
    int64_t step = 1;
    for (int i = 0; i < 4; i++)
        if (q->stride[i] == 0 && q->size[i] > 1) {
            view_dense(4, size, NULL, stride);
            return;
        }
    for (int i = 1; i < 4; i++)
        for (int j = i; j > 0; j--) {
            const int64_t before = q->stride[order[j - 1]], here = q->stride[order[j]];
            if (before > here || (before == here && q->size[order[j - 1]] >= q->size[order[j]])) break;
            const int swap = order[j];
            order[j] = order[j - 1];
            order[j - 1] = swap;
        }
    for (int i = 3; i >= 0; i--) {
        stride[order[i]] = step;
        step *= size[order[i]] > 1 ? size[order[i]] : 1;
    }
}

static int forward(call *c, const argument *a, AtenTensorHandle *out)
{
    int64_t size[4], stride[4];
    if (inputs(c, ATTN_FORWARD, a, a + 3)) return -1;
    const view *q = call_view(c, TENSOR(q));
    if (q->ndim != 4) return call_fail(c, ATTN_ERR_SHAPE, "query has %d axes; it must have 4", q->ndim);
    memcpy(size, q->size, sizeof size);
    size[3] = c->problem.shape.dim_v;
    strides_like(q, size, stride);
    if (call_output(c, TENSOR(o), 4, size, stride, q->dtype, &out[0])) return -1;
    const int64_t lse_stride[4] = {size[1] * size[2], 1, size[1]};
    return call_output(c, TENSOR(lse), 3, size, lse_stride, call_compute(c), &out[1]) || call_run(c) ? -1 : 0;
}

static int backward(call *c, const argument *a, AtenTensorHandle *out)
{
    if (inputs(c, ATTN_BACKWARD, a + 1, a + 6)) return -1;
    if (call_input(c, TENSOR(o), &a[4]) || call_input(c, TENSOR(lse), &a[5]) || call_input(c, TENSOR(grad_o), &a[0])) return -1;
    for (int i = 0; i < 3; i++) {
        const view *input = call_view(c, TENSOR(q) + i);
        const int64_t stride[4] = {input->size[1] * input->size[2] * input->size[3], input->size[3],
                                   input->size[1] * input->size[3], 1};
        if (call_output(c, TENSOR(grad_q) + i, 4, input->size, stride, input->dtype, &out[i])) return -1;
    }
    return call_run(c);
}

typedef int part(call *c, const argument *a, AtenTensorHandle *out);

static int with_call(part *run, int counter, const argument *a, AtenTensorHandle *out, attn_error *error)
{
    call c;
    __atomic_fetch_add(&aten_calls[counter], 1, __ATOMIC_RELAXED);
    call_begin(&c, error);
    const int failed = run(&c, a, out);
    call_end(&c);
    return failed;
}

static int forward_kernel(const argument *a, AtenTensorHandle *out, attn_error *error)
{
    return with_call(forward, 0, a, out, error);
}
static int backward_kernel(const argument *a, AtenTensorHandle *out, attn_error *error)
{
    return with_call(backward, 1, a, out, error);
}

static void forward_boxed(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    boxed_call("TTTfbtg", forward_kernel, stack, arguments, results);
}

static void backward_boxed(StableIValue *stack, uint64_t arguments, uint64_t results)
{
    boxed_call("TTTTTTfbtg", backward_kernel, stack, arguments, results);
}

const operator_row aten_operators[] = {
    {"_scaled_dot_product_flash_attention_for_cpu", forward_boxed},
    {"_scaled_dot_product_flash_attention_for_cpu_backward", backward_boxed},
    {NULL, NULL},
};
