/* SPDX-License-Identifier: MIT
 *
 * slice.c - a part of a problem as a problem of its own. */
#include "slice.h"

#include <string.h>

/* Where a part begins. */
typedef struct place {
    int64_t batch, head_q, head_kv, query;
} place;

static int64_t start_of(const place *at, attn_axis axis)
{
    switch (axis) {
    case ATTN_AXIS_BATCH:
        return at->batch;
    case ATTN_AXIS_HEAD_Q:
        return at->head_q;
    case ATTN_AXIS_HEAD_KV:
        return at->head_kv;
    case ATTN_AXIS_QUERY:
    case ATTN_AXIS_BLOCK_Q: /* of one query each */
        return at->query;
    default:
        return 0;
    }
}

/* All tensors from this place on, with the strides of the whole. */
static attn_tensors cut(const attn_problem *whole, const attn_tensors *all, const place *at)
{
    attn_tensors part = *all;
    for (int t = 0; t < TENSORS; t++) {
        const attn_tensor_description *d = tensors_about(t);
        attn_output *slot = tensors_slot(&part, t);
        int64_t stride[4], elements = 0;
        if (!slot->data || d->axes[0] == ATTN_AXIS_LIST) continue;
        tensors_strides(whole, all, t, stride);
        for (int axis = 0; axis < 4; axis++) elements += start_of(at, d->axes[axis]) * stride[axis];
        slot->dtype = tensors_dtype(all, t);
        memcpy(slot->stride, stride, sizeof stride);
        /* One element for all: strides of 0 would mean "dense" to the library. */
        if (!stride[0] && !stride[1] && !stride[2] && !stride[3]) slot->stride[3] = ATTN_BROADCAST;
        if (slot->data == ATTN_LATER || slot->data == ATTN_EMPTY) continue;
        slot->data = (char *)slot->data + elements * (int64_t)attn_dtype_size(slot->dtype);
    }
    return part;
}

/* ---- some queries ---- */

int slicer_can(const attn_problem *whole, const attn_tensors *all)
{
    const int cut_blocks = (all->block_mask.data || all->block_starts.data) && whole->mask.block_q != 1;
    return whole->op == ATTN_FORWARD && !all->cu_seqlens_q.data && !cut_blocks && whole->dropout.probability == 0 &&
           !all->dropout_given.data;
}

void slicer_init(slicer *s, const attn_problem *whole, const attn_tensors *all) { *s = (slicer){*whole, *all}; }

/* Points the lengths and the offset to the numbers of the slice. */
static void point(attn_tensors *part, const void *lengths_q, const void *lengths_kv, const void *offset)
{
    part->lengths_q = attn_in(lengths_q);
    part->lengths_kv = attn_in(lengths_kv);
    part->offset_q = attn_in(offset);
}

attn_problem slicer_problem(const slicer *s, int64_t rows, attn_tensors *tensors)
{
    const place first = {0};
    attn_problem part = s->whole;
    part.shape.batch = 1;
    part.shape.len_q = rows;
    part.mask.align = ATTN_ALIGN_TOP_LEFT;
    *tensors = cut(&s->whole, &s->all, &first);
    point(tensors, ATTN_LATER, ATTN_LATER, ATTN_LATER);
    return part;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

void slicer_take(const slicer *s, int64_t b, int64_t first, int64_t rows, slice *part)
{
    const attn_problem *whole = &s->whole;
    const int64_t *lengths_q = s->all.lengths_q.data, *lengths_kv = s->all.lengths_kv.data, *offset = s->all.offset_q.data;
    const place at = {.batch = b, .query = first};
    const int64_t len_q = lengths_q ? lengths_q[b] : whole->shape.len_q;
    part->tensors = cut(whole, &s->all, &at);
    part->lengths_q =
        len_q < 0 || len_q > whole->shape.len_q ? len_q : clamp(len_q - first, 0, rows); /* an invalid one stays invalid */
    part->lengths_kv = lengths_kv ? lengths_kv[b] : whole->shape.len_kv;
    part->offset = first;
    if (whole->mask.align == ATTN_ALIGN_BOTTOM_RIGHT) part->offset += part->lengths_kv - len_q;
    if (offset)
        part->offset += clamp(offset[b], INT64_MIN / 4, INT64_MAX / 4); /* no overflow; beyond all keys it makes no difference */
    point(&part->tensors, &part->lengths_q, &part->lengths_kv, &part->offset);
}

/* ---- one head of keys ---- */

int slice_heads_can(const attn_problem *p, const attn_tensors *all)
{
    for (int t = 0; t < TENSORS; t++) {
        int64_t shape[4];
        if (!tensors_writes(all, p->op, t)) continue;
        tensors_shape(p, all, t, shape);
        const attn_axis *axes = tensors_about(t)->axes;
        const int whole = axes[0] == ATTN_AXIS_BATCH && shape[0] == p->shape.batch && axes[1] != ATTN_AXIS_ONE;
        if (!whole || shape[1] != (axes[1] == ATTN_AXIS_HEAD_KV ? p->shape.heads_kv : p->shape.heads_q)) return 0;
    }
    return p->op == ATTN_BACKWARD && !all->cu_seqlens_q.data && !(p->dropout.probability > 0) && !all->dropout_given.data &&
           p->shape.heads_kv > 0;
}

attn_problem slice_heads_problem(const attn_problem *whole)
{
    attn_problem part = *whole;
    part.shape.batch = part.shape.heads_kv = 1;
    part.shape.heads_q = whole->shape.heads_q / whole->shape.heads_kv;
    return part;
}

attn_tensors slice_heads_tensors(const attn_problem *whole, const attn_tensors *all, int64_t b, int64_t g)
{
    const place at = {.batch = b, .head_kv = g, .head_q = g * (whole->shape.heads_q / whole->shape.heads_kv)};
    return cut(whole, all, &at);
}
