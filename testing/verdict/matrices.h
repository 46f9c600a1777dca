/* SPDX-License-Identifier: MIT
 * matrices.h - a matrix product: from ref/'s description to the library's. */
#ifndef ATTN_TESTING_VERDICT_MATRICES_H
#define ATTN_TESTING_VERDICT_MATRICES_H

#include "attn/product.h"
#include "attn_ref.h"

/* The length of a row of A and of B in memory. */
static inline int64_t matrices_row_a(const ref_matrices *m) { return m->a_transposed ? m->rows : m->inner; }
static inline int64_t matrices_row_b(const ref_matrices *m) { return m->b_transposed ? m->inner : m->columns; }

/* Replaces strides of 0 by those of dense matrices. */
static inline void matrices_dense(ref_matrices *m)
{
    if (!m->stride_a) m->stride_a = matrices_row_a(m);
    if (!m->stride_b) m->stride_b = matrices_row_b(m);
    if (!m->stride_c) m->stride_c = m->columns;
}

static inline attn_product_problem matrices_problem(const ref_matrices *m, attn_dtype dtype)
{
    attn_product_problem p = {.struct_size = sizeof p, .dtype = dtype, .add = m->add, .rows = m->rows};
    p.columns = m->columns;
    p.inner = m->inner;
    return p;
}

static inline attn_input matrices_slot(const void *data, int transposed, int64_t stride, int64_t row)
{
    attn_input slot = attn_in(data ? data : ATTN_EMPTY);
    if (transposed) return attn_transposed(slot.data, stride);
    if (stride != row) slot.stride[2] = stride, slot.stride[3] = 1;
    return slot;
}

/* NULL: no elements.  Dense strides are left to the library. */
static inline attn_product_tensors matrices_tensors(const ref_matrices *m, const void *a, const void *b, void *c)
{
    attn_product_tensors t = {.struct_size = sizeof t, .c = attn_out(c ? c : ATTN_EMPTY)};
    t.a = matrices_slot(a, m->a_transposed, m->stride_a, matrices_row_a(m));
    t.b = matrices_slot(b, m->b_transposed, m->stride_b, matrices_row_b(m));
    if (m->stride_c != m->columns) t.c.stride[2] = m->stride_c, t.c.stride[3] = 1;
    return t;
}

#endif
