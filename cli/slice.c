/* SPDX-License-Identifier: MIT
 *
 * slice.c - a part of a problem as a problem of its own: some queries of one batch entry. */
#include "slice.h"

#include <stddef.h>

#include "check/element.h"
#include "problem.h"

/* Where the layout and the pointer of a tensor are, and whether its third axis is that of the queries. */
static const struct {
    size_t layout, pointer;
    int by_query;
} tensors[SLICE_TENSORS] = {
    {offsetof(attn_problem, q), offsetof(attn_args, q), 1},
    {offsetof(attn_problem, k), offsetof(attn_args, k), 0},
    {offsetof(attn_problem, v), offsetof(attn_args, v), 0},
    {offsetof(attn_problem, o), offsetof(attn_args, o), 1},
    {offsetof(attn_problem, mask.mask), offsetof(attn_args, mask), 1},
    {offsetof(attn_problem, bias.bias), offsetof(attn_args, bias), 1},
    {offsetof(attn_problem, mask.blocks), offsetof(attn_args, blocks), 1},
    {offsetof(attn_problem, want.lse_layout), offsetof(attn_args, lse), 1},
    {offsetof(attn_problem, want.weights_layout), offsetof(attn_args, weights), 1},
    {offsetof(attn_problem, quantised.k_scale), offsetof(attn_args, k_scale), 0},
    {offsetof(attn_problem, quantised.v_scale), offsetof(attn_args, v_scale), 0},
};

static attn_layout *layout_in(attn_problem *p, int t) { return (attn_layout *)(void *)((char *)p + tensors[t].layout); }

/* What ATTN_DTYPE_DEFAULT stands for. */
static attn_dtype type_of(const attn_problem *p, int t)
{
    attn_dtype dtype = ((const attn_layout *)(const void *)((const char *)p + tensors[t].layout))->dtype;
    if (dtype) return dtype;
    attn_dtype q = p->q.dtype ? p->q.dtype : ATTN_F32;
    if (t < 4) return q;
    if (tensors[t].pointer == offsetof(attn_args, mask) || tensors[t].pointer == offsetof(attn_args, blocks)) return ATTN_BOOL;
    return q == ATTN_F64 ? ATTN_F64 : ATTN_F32;
}

int slicer_can(const attn_problem *whole)
{
    const int cut_blocks = whole->mask.block && whole->mask.block_q != 1;
    return whole->op == ATTN_FORWARD && !whole->mask.packed && !cut_blocks && whole->dropout.probability == 0 &&
           !whole->dropout.given;
}

void slicer_init(slicer *s, const attn_problem *whole, const attn_args *all)
{
    const attn_shape *n = &whole->shape;
    const attn_mask *m = &whole->mask;
    const int64_t blocks = m->block ? (n->len_kv + m->block_kv - 1) / m->block_kv : 0;
    const int64_t size[SLICE_TENSORS][4] = {
        {n->batch, n->heads_q, n->len_q, n->dim_qk},  {n->batch, n->heads_kv, n->len_kv, problem_dim_k(whole)},
        {n->batch, n->heads_kv, n->len_kv, n->dim_v}, {n->batch, n->heads_q, n->len_q, n->dim_v},
        {n->batch, n->heads_q, n->len_q, n->len_kv},  {n->batch, n->heads_q, n->len_q, n->len_kv},
        {n->batch, n->heads_q, n->len_q, blocks},     {n->batch, n->heads_q, n->len_q, 1},
        {n->batch, n->heads_q, n->len_q, n->len_kv},  {n->batch, n->heads_kv, n->len_kv, 1},
        {n->batch, n->heads_kv, n->len_kv, 1},
    };
    *s = (slicer){.whole = *whole, .all = *all};
    for (int t = 0; t < SLICE_TENSORS; t++) layout_strides(layout_in(&s->whole, t), size[t], s->stride[t]);
}

attn_problem slicer_problem(const slicer *s, int64_t rows)
{
    attn_problem part = s->whole;
    part.shape.batch = 1;
    part.shape.len_q = rows;
    for (int t = 0; t < SLICE_TENSORS; t++) {
        attn_layout *layout = layout_in(&part, t);
        layout->dtype = type_of(&s->whole, t);
        for (int axis = 0; axis < 4; axis++) layout->stride[axis] = s->stride[t][axis];
        /* A mask that is one element for all: the library would read "dense". */
        if (!layout->stride[3] && !layout->stride[2]) layout->stride[3] = ATTN_BROADCAST;
    }
    part.mask.align = ATTN_ALIGN_OFFSET;
    part.mask.index_dtype = ATTN_I64;
    return part;
}

/* Slopes are of the compute type. */
static size_t slope_size(const attn_problem *p) { return attn_dtype_size(p->q.dtype == ATTN_F64 ? ATTN_F64 : ATTN_F32); }

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

void slicer_take(const slicer *s, int64_t b, int64_t first, int64_t rows, slice *part)
{
    const attn_problem *whole = &s->whole;
    const int64_t *lengths_q = s->all.lengths_q, *lengths_kv = s->all.lengths_kv, *offset = s->all.offset;
    part->args = s->all;
    for (int t = 0; t < SLICE_TENSORS; t++) {
        char **pointer = (char **)(void *)((char *)&part->args + tensors[t].pointer);
        int64_t elements = b * s->stride[t][0] + (tensors[t].by_query ? first * s->stride[t][2] : 0);
        if (*pointer) *pointer += elements * (int64_t)attn_dtype_size(type_of(whole, t));
    }
    if (whole->bias.alibi == ATTN_ALIBI_BATCH_HEAD)
        part->args.slopes = (const char *)s->all.slopes + (size_t)(b * whole->shape.heads_q) * slope_size(whole);
    int64_t len_q = whole->mask.lengths_q ? lengths_q[b] : whole->shape.len_q;
    part->lengths_q = len_q < 0 || len_q > whole->shape.len_q ? len_q : clamp(len_q - first, 0, rows); /* a bad one stays bad */
    part->lengths_kv = whole->mask.lengths_kv ? lengths_kv[b] : whole->shape.len_kv;
    part->offset = first;
    if (whole->mask.align == ATTN_ALIGN_BOTTOM_RIGHT) part->offset += part->lengths_kv - len_q;
    if (whole->mask.align == ATTN_ALIGN_OFFSET) part->offset += clamp(offset[b], INT64_MIN / 4, INT64_MAX / 4); /* far is far */
    part->args.lengths_q = &part->lengths_q;
    part->args.lengths_kv = &part->lengths_kv;
    part->args.offset = &part->offset;
}
