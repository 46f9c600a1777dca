/* SPDX-License-Identifier: MIT
 *
 * problem_build.c - from a spec to the library's own description of a problem. */
#include <stdio.h>
#include <string.h>

#include "failure.h"
#include "problem.h"
#include "problem_rules.h"
#include "problem_terms.h"

attn_status problem_check(problem_spec *spec, attn_error *error)
{
    const char *other = spec->align ? "align" : spec->causal == SPEC_CAUSAL_BOTTOM_RIGHT ? "causal=bottom-right" : NULL;
    if (spec->offset_kind && other) return failure(error, ATTN_ERR_ARGUMENT, "offset and %s both say where queries stand", other);
    if (spec->causal && spec->align)
        return failure(error, ATTN_ERR_ARGUMENT, "causal and align both say where queries stand; use causal=KIND alone");
    if (spec->causal == SPEC_CAUSAL_OFFSET) {
        if (!spec->offset_kind) return failure(error, ATTN_ERR_ARGUMENT, "causal=offset needs an offset");
        spec->causal = SPEC_CAUSAL_TOP_LEFT;
    }
    if (spec->window && spec->sparse[0])
        return failure(error, ATTN_ERR_ARGUMENT, "window and sparse=%s both say which keys are near", spec->sparse);
    if (spec->align == SPEC_ALIGN_TOP_LEFT) spec->align = SPEC_ALIGN_NONE;
    return problem_check_terms(spec, error);
}

/* A gradient needs what it is the gradient of. */
static attn_status check_gradients(const problem_spec *spec, attn_error *error)
{
    const struct {
        int asked, there;
        const char *name, *of, *is;
    } gradients[] = {{spec->dbias, spec->bias, "dbias", "bias", "the gradient of the bias"},
                     {spec->dslopes, spec->alibi, "dslopes", "alibi", "the gradient of its slopes"},
                     {spec->dtable, spec->t5 || spec->clipped, "dtable", "t5 or clipped", "the gradient of its table"},
                     {spec->drel, spec->rel[0], "drel", "rel", "the gradients of its tables"},
                     {spec->dsink, spec->sink, "dsink", "sink", "the gradient of the sink"},
                     {spec->dscale, spec->scale_heads, "dscale", "scale=heads", "the gradient of the scale of each head"}};
    const int backward = spec->op == SPEC_BACKWARD;
    for (size_t k = 0; k < sizeof gradients / sizeof *gradients; k++)
        if (gradients[k].asked && !(backward && gradients[k].there))
            return failure(error, ATTN_ERR_ARGUMENT, "%s needs bwd and %s: it is %s", gradients[k].name, gradients[k].of,
                           gradients[k].is);
    if (spec->dlse && !backward && spec->op != SPEC_DOUBLE_BACKWARD)
        return failure(error, ATTN_ERR_ARGUMENT, "dlse needs bwd or bwd2: it is a gradient that flows in");
    return ATTN_OK;
}

/* Names the first thing that is missing. */
static attn_status check_supported(const problem_spec *spec, attn_error *error)
{
    const char *missing = spec->op == SPEC_DECODE                                       ? "decode"
                          : spec->op == SPEC_LINEAR || spec->op == SPEC_LINEAR_BACKWARD ? "linear attention"
                                                                                        : NULL;
    const char *word = spec->phi[0]         ? "phi"
                       : spec->decay        ? "decay"
                       : spec->rule         ? "rule"
                       : spec->denominator  ? "denominator"
                       : spec->epsilon != 0 ? "epsilon"
                       : spec->form         ? "form"
                                            : NULL;
    if (spec->rope)
        return failure(error, ATTN_ERR_UNSUPPORTED,
                       "rope turns queries and keys before there is a problem: attn run, top, view and analyze have --rope");
    if (!missing && word)
        return failure(error, ATTN_ERR_ARGUMENT, "%s is a word of linear attention: linear or linear-bwd, or attn run --linear",
                       word);
    if (missing) return failure(error, ATTN_ERR_UNSUPPORTED, "libattn %s has no %s", attn_version(), missing);
    return check_gradients(spec, error);
}

static attn_op op_of(const problem_spec *spec)
{
    return spec->op == SPEC_BACKWARD          ? ATTN_BACKWARD
           : spec->op == SPEC_JVP             ? ATTN_JVP
           : spec->op == SPEC_DOUBLE_BACKWARD ? ATTN_DOUBLE_BACKWARD
                                              : ATTN_FORWARD;
}

/* What flows in and out, beside the gradients of q, k and v. */
static void ask_for_flows(const problem_spec *spec, attn_problem *p)
{
    p->gradients = (attn_gradients){
        .lse = spec->dlse, .bias = spec->dbias, .slopes = spec->dslopes, .sink = spec->dsink, .scale = spec->dscale};
    if (p->op == ATTN_JVP || p->op == ATTN_DOUBLE_BACKWARD) {
        p->tangents.q = p->tangents.k = p->tangents.v = 1;
        p->tangents.bias = spec->bias;
    }
    p->tangents.lse = p->op == ATTN_JVP;
    p->second.grad_lse = p->op == ATTN_DOUBLE_BACKWARD;
    p->second.bias = p->op == ATTN_DOUBLE_BACKWARD && spec->bias;
}

int64_t problem_blocks(int64_t length, int64_t block) { return length / block + (length % block != 0); }

static const int bhsd[4] = {0, 1, 2, 3}, bshd[4] = {0, 2, 1, 3};

/* The strides of a dense tensor with its axes in this order, outermost first.  Axes in `one` have size 1 and broadcast. */
static attn_status set_strides(attn_layout *layout, const int64_t size[4], const int order[4], int one, attn_error *error)
{
    int64_t step = 1;
    for (int k = 3; k >= 0; k--) {
        const int axis = order[k], broadcast = one >> axis & 1;
        layout->stride[axis] = broadcast ? ATTN_BROADCAST : step;
        if (!broadcast && __builtin_mul_overflow(step, size[axis] > 0 ? size[axis] : 1, &step))
            return failure(error, ATTN_ERR_SHAPE, "a tensor of %lld x %lld x %lld x %lld elements is too large", (long long)size[0],
                           (long long)size[1], (long long)size[2], (long long)size[3]);
    }
    return ATTN_OK;
}

attn_status problem_build(const problem_spec *given, attn_problem *problem, attn_error *error)
{
    problem_spec checked = *given;
    const problem_spec *spec = &checked;
    attn_status status = problem_check(&checked, error);
    if (status == ATTN_OK) status = check_supported(spec, error);
    if (status != ATTN_OK) return status;

    attn_problem p = {.struct_size = sizeof p, .shape = spec->shape};
    p.op = op_of(spec);
    ask_for_flows(spec, &p);
    const attn_shape *s = &p.shape;
    p.q.dtype = p.k.dtype = p.v.dtype = p.o.dtype = problem_dtype(spec);
    if (spec->dtype == SPEC_INT8) p.k.dtype = p.v.dtype = ATTN_I8;
    p.dropout.probability = spec->dropout;
    p.bias.alibi = (attn_alibi)spec->alibi;
    p.bias.sink = spec->sink;

    status = problem_build_terms(spec, &p, error);
    if (status != ATTN_OK) return status;

    p.mask.causal = spec->causal != SPEC_CAUSAL_NONE;
    int bottom_right = spec->causal == SPEC_CAUSAL_BOTTOM_RIGHT || spec->align == SPEC_ALIGN_BOTTOM_RIGHT;
    p.mask.align = spec->offset_kind ? ATTN_ALIGN_OFFSET : bottom_right ? ATTN_ALIGN_BOTTOM_RIGHT : ATTN_ALIGN_TOP_LEFT;
    p.mask.window = spec->window;
    p.mask.window_left = spec->window ? spec->window_left : 0;
    p.mask.window_right = spec->window ? spec->window_right : 0;
    long long width, global;
    if (sscanf(spec->sparse, "longformer/%lld/%lld", &width, &global) == 2) {
        p.mask.window = 1;
        p.mask.window_left = p.mask.window_right = width / 2;
        p.mask.global_q = p.mask.global_kv = global;
    }
    p.mask.lengths_q = spec->lengths == SPEC_LENGTHS_BOTH || spec->lengths == SPEC_LENGTHS_Q;
    p.mask.lengths_kv = spec->lengths == SPEC_LENGTHS_BOTH || spec->lengths == SPEC_LENGTHS_KV;
    p.mask.packed = spec->packed;
    p.mask.chunk = spec->chunk;
    p.mask.empty = (attn_empty)spec->empty;
    p.mask.index_dtype = ATTN_I64;
    p.want.lse = spec->lse;
    p.want.weights = spec->weights;

    const int64_t pairs[4] = {s->batch, s->heads_q, s->len_q, s->len_kv};
    if (spec->order == SPEC_BSHD && !spec->packed) { /* packed tensors have tokens outermost anyway */
        const int64_t dim_k = problem_dim_k(&p);
        struct {
            attn_layout *layout;
            int64_t heads, length, width;
        } tensor[] = {{&p.q, s->heads_q, s->len_q, s->dim_qk},
                      {&p.k, s->heads_kv, s->len_kv, dim_k},
                      {&p.v, s->heads_kv, s->len_kv, s->dim_v},
                      {&p.o, s->heads_q, s->len_q, s->dim_v},
                      {&p.gradients.grad_o, s->heads_q, s->len_q, s->dim_v},
                      {&p.tangents.tan_q, s->heads_q, s->len_q, s->dim_qk},
                      {&p.tangents.tan_k, s->heads_kv, s->len_kv, dim_k},
                      {&p.tangents.tan_v, s->heads_kv, s->len_kv, s->dim_v},
                      {&p.tangents.tan_o, s->heads_q, s->len_q, s->dim_v},
                      {&p.second.second_grad_o, s->heads_q, s->len_q, s->dim_v},
                      {&p.second.second_q, s->heads_q, s->len_q, s->dim_qk},
                      {&p.second.second_k, s->heads_kv, s->len_kv, dim_k},
                      {&p.second.second_v, s->heads_kv, s->len_kv, s->dim_v},
                      {&p.gradients.grad_q, s->heads_q, s->len_q, s->dim_qk},
                      {&p.gradients.grad_k, s->heads_kv, s->len_kv, dim_k},
                      {&p.gradients.grad_v, s->heads_kv, s->len_kv, s->dim_v}};
        for (size_t k = 0; k < sizeof tensor / sizeof *tensor && status == ATTN_OK; k++)
            status = set_strides(tensor[k].layout, (const int64_t[4]){s->batch, tensor[k].heads, tensor[k].length, tensor[k].width},
                                 bshd, 0, error);
    }
    if (status == ATTN_OK && spec->mask) {
        p.mask.boolean = 1;
        p.mask.mask.dtype = ATTN_BOOL;
        status = set_strides(&p.mask.mask, pairs, bhsd, spec->mask_one, error);
    }
    if (status == ATTN_OK && spec->block) {
        p.mask.block = 1;
        p.mask.block_q = spec->block_q;
        p.mask.block_kv = spec->block_kv;
        p.mask.blocks.dtype = ATTN_BOOL;
        const int64_t blocks[4] = {s->batch, s->heads_q, problem_blocks(s->len_q, spec->block_q),
                                   problem_blocks(s->len_kv, spec->block_kv)};
        status = set_strides(&p.mask.blocks, blocks, bhsd, spec->block_one, error);
    }
    if (status == ATTN_OK && spec->bias) {
        p.bias.additive = 1;
        status = set_strides(&p.bias.bias, pairs, bhsd, spec->bias_one, error);
        if (p.tangents.bias) memcpy(p.tangents.tan_bias.stride, p.bias.bias.stride, sizeof p.bias.bias.stride);
    }
    if (status == ATTN_OK) *problem = p;
    return status;
}
