/* SPDX-License-Identifier: MIT
 * node.c - what becomes of the results of cells: they are combined, two at a time, and stored. */
#include <math.h>

#include "../common/slots.h"
#include "attn/merge.h"
#include "piece.h"
#include "rows.h"

/* ---- combining ---- */

static void add_numbers(attn_dtype compute, void *left, const void *right, int64_t count)
{
    if (compute == ATTN_F64) {
        double *a = left;
        const double *b = right;
        for (int64_t n = 0; n < count; n++) a[n] += b[n];
    } else {
        float *a = left;
        const float *b = right;
        for (int64_t n = 0; n < count; n++) a[n] += b[n];
    }
}

/* left += right for `tokens` tokens of each head, of space for `part`. */
static void add_result(const attn_cells *c, const attn_bound *b, int64_t at, int64_t part, int64_t tokens, char *left,
                       const char *right)
{
    const int64_t size = (int64_t)attn_dtype_size(c->bounds.compute);
    for (int64_t n = 0; n < b->shape[0] * b->shape[1] && b->width > 0; n++) {
        const int64_t offset = at + n * part * b->width * size;
        add_numbers(c->bounds.compute, left + offset, right + offset, tokens * b->width);
    }
}

static attn_input slot_at(const attn_cells *c, const char *node, int64_t at, int64_t width)
{
    const int64_t part = attn_part_most(&c->grid.q), heads = c->problem.shape.heads_q;
    return (attn_input){node + at, c->bounds.compute, {heads * part * width, part * width, width, 1}};
}

static void merge(const attn_cells *c, int64_t tokens, char *left, const char *right)
{
    const attn_shape *s = &c->problem.shape;
    const int64_t at_o = attn_rows_at(c, offsetof(attn_tensors, o)), at_lse = attn_rows_at(c, offsetof(attn_tensors, lse));
    const attn_merge_problem problem = {
        .struct_size = sizeof problem, .parts = 2, .batch = s->batch, .heads = s->heads_q, .len_q = tokens, .dim_v = s->dim_v};
    const attn_input o[2] = {slot_at(c, left, at_o, s->dim_v), slot_at(c, right, at_o, s->dim_v)},
                     lse[2] = {slot_at(c, left, at_lse, 1), slot_at(c, right, at_lse, 1)};
    attn_merge_tensors t = {.struct_size = sizeof t, .o_parts = o, .lse_parts = lse};
    t.o = (attn_output){left + at_o, o->dtype, {o->stride[0], o->stride[1], o->stride[2], 1}};
    t.lse = (attn_output){left + at_lse, o->dtype, {lse->stride[0], lse->stride[1], lse->stride[2], 1}};
    (void)attn_merge(&problem, &t, &c->options, NULL); /* (nothing of it is the caller's) */
}

void attn_node_add(const attn_cells *c, attn_node_kind kind, int64_t tokens, char *left, const char *right)
{
    const int is_forward = c->problem.op == ATTN_FORWARD && kind == ATTN_NODE_ROW,
              sums = c->problem.score.normaliser == ATTN_NORMALISER_SIGMOID;
    if (is_forward) attn_rows_combine(c, tokens, left, right);
    if (is_forward && !sums) {
        merge(c, tokens, left, right);
        attn_rows_end(c, tokens, left);
        return;
    }
    for (int n = 0; n < c->bounds.count; n++) {
        const attn_bound *b = &c->bounds.all[n];
        if (b->role != ATTN_ROLE_OUTPUT || b->spread != attn_spread_of(kind) ||
            (is_forward && b->offset != offsetof(attn_tensors, o)))
            continue;
        const int64_t space = attn_node_space(c, kind, b), rows = kind == ATTN_NODE_SHARED ? b->shape[2] : tokens;
        add_result(c, b, c->at[n], space, rows, left, right);
    }
}

/* ---- storing ---- */

static int is_index(const attn_bound *b) { return b->offset == offsetof(attn_tensors, topk_index); }

static void store_index(const attn_bound *b, const int64_t *from, char *to)
{
    for (int64_t n = 0; n < b->width; n++)
        if (b->dtype == ATTN_I32) ((int32_t *)(void *)to)[n] = (int32_t)from[n];
        else ((int64_t *)(void *)to)[n] = from[n];
}

/* The last axis of a bias need not be contiguous. */
static void store_token(const attn_bound *b, const char *from, attn_dtype compute, char *to)
{
    const int64_t size = (int64_t)attn_dtype_size(b->dtype), own = (int64_t)attn_dtype_size(compute);
    const int whole = b->stride[3] == 1 || b->width <= 1;
    for (int64_t n = 0; n < (whole ? 1 : b->width); n++, to += whole ? 0 : b->stride[3] * size) { /* (of one, it may be any) */
        if (!from) memset(to, 0, (size_t)((whole ? b->width : 1) * size));
        else if (is_index(b)) store_index(b, (const int64_t *)(const void *)from, to);
        else (void)attn_convert(whole ? b->width : 1, from + n * own, compute, to, b->dtype, NULL);
    }
}

static void store(const attn_cells *c, const attn_bound *b, void *data, int64_t first, int64_t tokens, int64_t space,
                  const char *from)
{
    const int64_t size = (int64_t)attn_dtype_size(b->dtype), own = (int64_t)attn_dtype_size(attn_node_dtype(c, b));
    if (!b->has_elements) return;
    for (int64_t x = 0; x < b->shape[0]; x++)
        for (int64_t h = 0; h < b->shape[1]; h++)
            for (int64_t t = 0; t < tokens; t++)
                store_token(b, from ? from + ((x * b->shape[1] + h) * space + t) * b->width * own : NULL, c->bounds.compute,
                            (char *)data + (x * b->stride[0] + h * b->stride[1] + (first + t) * b->stride[2]) * size);
}

void attn_node_store(const attn_cells *c, attn_node_kind kind, const attn_tensors *mine, int64_t local, int64_t tokens,
                     const char *node)
{
    for (int n = 0; n < c->bounds.count; n++) {
        const attn_bound *b = &c->bounds.all[n];
        if (b->role != ATTN_ROLE_OUTPUT || b->spread != attn_spread_of(kind)) continue;
        const int shared = kind == ATTN_NODE_SHARED;
        const attn_input slot = attn_bound_slot(b, mine);
        store(c, b, slot_written(&slot), shared ? 0 : local, shared ? b->shape[2] : tokens, attn_node_space(c, kind, b),
              node ? node + c->at[n] : NULL);
    }
}

/* What a result says of a pair that no cell has: 0, or -infinity of a score. */
static void empty_pair(const attn_cells *c, const attn_bound *b, char element[8])
{
    const float none = -(float)INFINITY;
    memset(element, 0, 8);
    if (b->offset == offsetof(attn_tensors, scores) && c->problem.outputs.scores_stage < ATTN_STAGE_WEIGHTS)
        (void)attn_convert(1, &none, ATTN_F32, element, b->dtype, NULL);
}

/* Its last axis need not be contiguous. */
static void clear_rows(const attn_bound *b, char *data, const char *element)
{
    const int64_t *s = b->stride;
    const size_t size = attn_dtype_size(b->dtype);
    if (!b->has_elements) return;
    for (int64_t x = 0; x < b->shape[0]; x++)
        for (int64_t h = 0; h < b->shape[1]; h++)
            for (int64_t i = 0; i < b->shape[2]; i++)
                for (int64_t j = 0; j < b->shape[3]; j++)
                    memcpy(data + (x * s[0] + h * s[1] + i * s[2] + j * s[3]) * (int64_t)size, element, size);
}

void attn_cells_clear(const attn_cells *c, const attn_tensors *mine)
{
    for (int n = 0; n < c->bounds.count; n++) {
        const attn_bound *b = &c->bounds.all[n];
        const attn_input slot = attn_bound_slot(b, mine);
        char element[8];
        if (b->role != ATTN_ROLE_OUTPUT || b->spread != ATTN_SPREAD_PAIRS) continue;
        empty_pair(c, b, element);
        clear_rows(b, slot_written(&slot), element);
    }
}
