/* SPDX-License-Identifier: MIT
 * uniform.c - see uniform.h. */
#include "uniform.h"

#include <math.h>

#include "../common/slots.h"
#include "number.h"

double attn_uniform_share(const attn_cells *c, const attn_piece *p)
{
    const int64_t *starts = c->index.starts_kv;
    const int64_t keys = starts ? starts[p->entry + 1] - starts[p->entry] : c->problem.shape.len_kv;
    return (double)p->keys / (double)keys;
}

static int is_of(const attn_cells *c, attn_op op) { return c->problem.mask.empty == ATTN_EMPTY_UNIFORM && c->problem.op == op; }

int attn_uniform_has_rows(const attn_cells *c) { return is_of(c, ATTN_BACKWARD) || is_of(c, ATTN_DOUBLE_BACKWARD); }

/* ---- memory ---- */

attn_status attn_uniform_fit(const attn_cells *c, attn_error *error)
{
    const attn_shape *s = &c->problem.shape;
    const int64_t sizes[] = {s->batch, s->heads_q, attn_part_most(&c->grid.q), s->dim_v};
    CHECK(!attn_uniform_has_rows(c) || sizes_fit(64, sizes, 4), ATTN_ERR_SHAPE,
          "distributed: grad_o of a part is too large: its bytes overflow 64 bits");
    return ATTN_OK;
}

size_t attn_uniform_bytes(const attn_cells *c)
{
    const attn_shape *s = &c->problem.shape;
    const int64_t sizes[] = {s->batch, s->heads_q, attn_part_most(&c->grid.q), s->dim_v};
    if (!attn_uniform_has_rows(c)) return 0;
    return attn_round_64_up((size_t)sizes_product(sizes, 4) * attn_dtype_size(c->bounds.compute));
}

void attn_uniform_place(const attn_cells *c, const attn_cell *cell, const attn_piece *p, attn_piece_call *x)
{
    const attn_shape *s = &c->problem.shape;
    const int64_t sizes[] = {s->batch, s->heads_q, p->queries, s->dim_v}, head = p->queries * s->dim_v;
    if (!attn_uniform_has_rows(c) || cell->j < 0) return;
    x->tensors.grad_o = (attn_input){.data = ATTN_EMPTY, .dtype = c->bounds.compute};
    if (!sizes_product(sizes, 4)) return;
    x->tensors.grad_o =
        (attn_input){cell->scratch ? cell->scratch : ATTN_LATER, c->bounds.compute, {s->heads_q * head, head, s->dim_v, 1}};
}

/* ---- rows ---- */

/* A tensor of the rank's queries at one of them. */
static const char *row_at(const attn_cells *c, const attn_tensors *mine, size_t offset, int64_t b, int64_t h, int64_t local)
{
    const attn_bound *x = attn_bound_get(&c->bounds, offset);
    const int64_t at = b * x->stride[0] + h * x->stride[1] + local * x->stride[2];
    return (const char *)attn_bound_slot(x, mine).data + at * (int64_t)attn_dtype_size(x->dtype);
}

static int is_empty(const attn_cells *c, const attn_tensors *mine, int64_t b, int64_t h, int64_t local)
{
    const char *lse = row_at(c, mine, offsetof(attn_tensors, lse), b, h, local);
    return attn_number_get(c->bounds.compute, lse, 0) == -(double)INFINITY;
}

static void multiply(attn_dtype dtype, char *numbers, int64_t count, double by)
{
    for (int64_t n = 0; n < count; n++) attn_number_put(dtype, numbers, n, attn_number_get(dtype, numbers, n) * by);
}

void attn_uniform_begin(const attn_cells *c, const attn_tensors *mine, const attn_cell *cell, const attn_piece *p)
{
    const attn_dtype compute = c->bounds.compute;
    const int64_t width = c->problem.shape.dim_v, row = width * (int64_t)attn_dtype_size(compute),
                  first = c->grid.q.local[cell->i] + p->first_q - attn_part_first(&c->grid.q, cell->i);
    char *to = cell->scratch;
    if (!attn_uniform_has_rows(c) || cell->j < 0 || width == 0) return;
    const attn_dtype from = attn_bound_get(&c->bounds, offsetof(attn_tensors, grad_o))->dtype;
    for (int64_t b = 0; b < c->problem.shape.batch; b++)
        for (int64_t h = 0; h < c->problem.shape.heads_q; h++)
            for (int64_t i = first; i < first + p->queries; i++, to += row) {
                (void)attn_convert(width, row_at(c, mine, offsetof(attn_tensors, grad_o), b, h, i), from, to, compute, NULL);
                if (is_empty(c, mine, b, h, i)) multiply(compute, to, width, attn_uniform_share(c, p));
            }
}

void attn_uniform_end(const attn_cells *c, const attn_tensors *mine, const attn_cell *cell, const attn_piece *p)
{
    const attn_dtype compute = c->bounds.compute;
    const int64_t width = c->problem.shape.dim_v, row = width * (int64_t)attn_dtype_size(compute),
                  part = attn_part_most(&c->grid.q), inside = p->first_q - attn_part_first(&c->grid.q, cell->i),
                  first = c->grid.q.local[cell->i] + inside;
    if (!is_of(c, ATTN_JVP) || cell->j < 0) return;
    char *const node = cell->node[ATTN_NODE_ROW] + c->at[attn_bound_get(&c->bounds, offsetof(attn_tensors, tan_o)) - c->bounds.all];
    for (int64_t b = 0; b < c->problem.shape.batch; b++)
        for (int64_t h = 0; h < c->problem.shape.heads_q; h++)
            for (int64_t i = 0; i < p->queries; i++)
                if (is_empty(c, mine, b, h, first + i))
                    multiply(compute, node + ((b * c->problem.shape.heads_q + h) * part + inside + i) * row, width,
                             attn_uniform_share(c, p));
}
