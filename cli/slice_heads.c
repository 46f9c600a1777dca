/* SPDX-License-Identifier: MIT
 *
 * slice_heads.c - see slice_heads.h. */
#include "slice_heads.h"

#include <stddef.h>

#include "check/element.h"
#include "problem.h"

enum { BY_QUERY, BY_KEY, BY_PAIR, BY_BLOCK, BY_ROW };
enum { AS_Q, AS_COMPUTE, AS_MASK };

/* Where the layout and the pointer of a tensor are, its axes, and its type where the layout does not say. */
static const struct {
    size_t layout, pointer;
    int axes, type, wide; /* wide: dim_v channels */
} tensors[] = {
    {offsetof(attn_problem, q), offsetof(attn_args, q), BY_QUERY, AS_Q, 0},
    {offsetof(attn_problem, k), offsetof(attn_args, k), BY_KEY, AS_Q, 0},
    {offsetof(attn_problem, v), offsetof(attn_args, v), BY_KEY, AS_Q, 1},
    {offsetof(attn_problem, o), offsetof(attn_args, o), BY_QUERY, AS_Q, 1},
    {offsetof(attn_problem, gradients.grad_o), offsetof(attn_args, grad_o), BY_QUERY, AS_Q, 1},
    {offsetof(attn_problem, gradients.grad_q), offsetof(attn_args, grad_q), BY_QUERY, AS_Q, 0},
    {offsetof(attn_problem, gradients.grad_k), offsetof(attn_args, grad_k), BY_KEY, AS_Q, 0},
    {offsetof(attn_problem, gradients.grad_v), offsetof(attn_args, grad_v), BY_KEY, AS_Q, 1},
    {offsetof(attn_problem, want.lse_layout), offsetof(attn_args, lse), BY_ROW, AS_COMPUTE, 0},
    {offsetof(attn_problem, want.lse_layout), offsetof(attn_args, grad_lse), BY_ROW, AS_COMPUTE, 0},
    {offsetof(attn_problem, mask.mask), offsetof(attn_args, mask), BY_PAIR, AS_MASK, 0},
    {offsetof(attn_problem, bias.bias), offsetof(attn_args, bias), BY_PAIR, AS_COMPUTE, 0},
    {offsetof(attn_problem, mask.blocks), offsetof(attn_args, blocks), BY_BLOCK, AS_MASK, 0},
};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static const attn_layout *layout_of(const attn_problem *p, int t)
{
    return (const attn_layout *)(const void *)((const char *)p + tensors[t].layout);
}

static attn_dtype type_of(const attn_problem *p, int t)
{
    const attn_dtype q = p->q.dtype ? p->q.dtype : ATTN_F32, own = layout_of(p, t)->dtype;
    if (own) return own;
    return tensors[t].type == AS_Q ? q : tensors[t].type == AS_MASK ? ATTN_BOOL : q == ATTN_F64 ? ATTN_F64 : ATTN_F32;
}

static void strides_of(const attn_problem *p, int t, int64_t stride[4])
{
    const attn_shape *s = &p->shape;
    const attn_mask *m = &p->mask;
    const int64_t blocks_q = m->block ? (s->len_q + m->block_q - 1) / m->block_q : 0;
    const int64_t blocks_kv = m->block ? (s->len_kv + m->block_kv - 1) / m->block_kv : 0;
    const int64_t channels = tensors[t].wide ? s->dim_v : tensors[t].axes == BY_KEY ? problem_dim_k(p) : s->dim_qk;
    const int64_t sizes[][4] = {[BY_QUERY] = {s->batch, s->heads_q, s->len_q, channels},
                                [BY_KEY] = {s->batch, s->heads_kv, s->len_kv, channels},
                                [BY_PAIR] = {s->batch, s->heads_q, s->len_q, s->len_kv},
                                [BY_BLOCK] = {s->batch, s->heads_q, blocks_q, blocks_kv},
                                [BY_ROW] = {s->batch, s->heads_q, s->len_q, 1}};
    layout_strides(layout_of(p, t), sizes[tensors[t].axes], stride);
}

int slice_heads_can(const attn_problem *p)
{
    const attn_gradients *g = &p->gradients;
    const attn_bias *b = &p->bias;
    const int summed = g->bias || g->slopes || g->sink || g->scale || g->w || g->bias_table || g->relative;
    const int by_head = b->alibi || b->sink || p->bias_table.used || p->relative.keys || p->relative.values ||
                        p->score.kind != ATTN_SCORE_DOT || p->score.scale_kind == ATTN_SCALE_PER_HEAD;
    return p->op == ATTN_BACKWARD && !summed && !by_head && !p->mask.packed && !(p->dropout.probability > 0) && !p->dropout.given &&
           p->shape.heads_kv > 0;
}

attn_problem slice_heads_problem(const attn_problem *whole)
{
    attn_problem part = *whole;
    for (int t = 0; t < TENSORS; t++) {
        attn_layout *layout = (attn_layout *)(void *)((char *)&part + tensors[t].layout);
        layout->dtype = type_of(whole, t);
        strides_of(whole, t, layout->stride);
        /* One element for all: the library would read "dense". */
        if (!layout->stride[3] && !layout->stride[2] && tensors[t].axes != BY_ROW) layout->stride[3] = ATTN_BROADCAST;
    }
    part.shape.batch = part.shape.heads_kv = 1;
    part.shape.heads_q = whole->shape.heads_q / whole->shape.heads_kv;
    part.mask.index_dtype = ATTN_I64;
    return part;
}

attn_args slice_heads_args(const attn_problem *whole, const attn_args *all, int64_t b, int64_t g)
{
    attn_args args = *all;
    const int64_t *const *of_all[] = {(const int64_t *const *)(const void *)&all->lengths_q,
                                      (const int64_t *const *)(const void *)&all->lengths_kv,
                                      (const int64_t *const *)(const void *)&all->offset};
    const void **indices[] = {&args.lengths_q, &args.lengths_kv, &args.offset};
    for (int t = 0; t < TENSORS; t++) {
        char **pointer = (char **)(void *)((char *)&args + tensors[t].pointer);
        int64_t stride[4];
        strides_of(whole, t, stride);
        const int64_t head = tensors[t].axes == BY_KEY ? g : g * (whole->shape.heads_q / whole->shape.heads_kv);
        if (*pointer) *pointer += (b * stride[0] + head * stride[1]) * (int64_t)attn_dtype_size(type_of(whole, t));
    }
    for (int k = 0; k < 3; k++)
        if (*indices[k]) *indices[k] = *of_all[k] + b;
    return args;
}
