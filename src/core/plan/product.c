/* SPDX-License-Identifier: MIT
 * product.c - every rule that a matrix product must satisfy.  Each has a row with its exact message in
 * tests/unit/test_product_rejected.c.  A small product takes as long as its checks, so they are in the cheapest order. */
#include "product.h"

#include <inttypes.h>
#include <stdlib.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "../base/struct.h"
#include "tensors.h"

static attn_status check_size(const char *name, int64_t size, attn_error *error)
{
    CHECK(size >= 0, ATTN_ERR_SHAPE, "product: %s (%" PRId64 ") is negative", name, size);
    return ATTN_OK;
}

attn_status attn_product_resolve(const attn_product_problem *given, attn_product_matrices *m, attn_error *error)
{
    attn_product_problem copy;
    const attn_product_problem *p = given;
    if (given->struct_size != sizeof copy) {
        TRY(attn_struct_read(&copy, sizeof copy, sizeof copy, given, "attn_product_problem", error));
        p = &copy;
    }
    const attn_dtype dtype = p->dtype ? p->dtype : ATTN_F32;
    CHECK(dtype == ATTN_F32 || dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "product: dtype is %s; it must be f32 or f64",
          attn_dtype_text(dtype));
    TRY(check_size("rows", p->rows, error));
    TRY(check_size("columns", p->columns, error));
    TRY(check_size("inner", p->inner, error));
    CHECK(p->add == 0 || p->add == 1, ATTN_ERR_ARGUMENT, "product: add is %d; it must be 0 or 1", p->add);
    for (int i = 0; i < 4; i++)
        CHECK(p->reserved[i] == 0, ATTN_ERR_ARGUMENT, "product: reserved[%d] is %" PRId64 "; it must be 0", i, p->reserved[i]);
    *m = (attn_product_matrices){.dtype = dtype,
                                 .add = p->add,
                                 .rows = p->rows,
                                 .columns = p->columns,
                                 .inner = p->inner,
                                 .stride_a = p->inner,
                                 .stride_b = p->columns,
                                 .stride_c = p->columns};
    return ATTN_OK;
}

/* A matrix of the call: its slot, and what follows from it. */
typedef struct matrix {
    const char *name;
    const attn_input *slot;
    int64_t rows, columns;
    int by_rows, by_columns; /* which of them are contiguous; possibly neither */
    int64_t row, column;     /* strides */
    size_t size;             /* bytes of an element */
    uintptr_t low, end;      /* of its elements; equal if it has none */
} matrix;

static int has_elements(const matrix *m) { return m->rows > 0 && m->columns > 0; }

static attn_status reject_data(const matrix *m, attn_error *error)
{
    const attn_input *s = m->slot;
    CHECK(s->data || (!s->dtype && !s->stride[0] && !s->stride[1] && !s->stride[2] && !s->stride[3]), ATTN_ERR_ARGUMENT,
          "product: %s is NULL and has a type or strides; a slot that is not set must be all 0", m->name);
    CHECK(s->data, ATTN_ERR_ARGUMENT, "product: %s is missing", m->name);
    CHECK(s->data != ATTN_MISSING, ATTN_ERR_ARGUMENT, "product: %s is NULL", m->name);
    CHECK(s->data != ATTN_LATER, ATTN_ERR_ARGUMENT, "product: %s is ATTN_LATER; this call needs its pointer", m->name);
    CHECK(s->data != ATTN_EMPTY || !has_elements(m), ATTN_ERR_ARGUMENT, "product: %s is ATTN_EMPTY and has elements", m->name);
    CHECK(((uintptr_t)s->data & (m->size - 1)) == 0 || !has_elements(m), ATTN_ERR_ARGUMENT,
          "product: %s is not aligned to its elements of %zu bytes", m->name, m->size);
    return ATTN_OK;
}

static int64_t meant(int64_t stride) { return stride == ATTN_BROADCAST ? 0 : stride; }

/* From its lowest element to one past its highest; strides must be checked. */
static void reach(matrix *m)
{
    const int64_t size = (int64_t)m->size, rows = (m->rows - 1) * m->row * size, columns = (m->columns - 1) * m->column * size;
    m->low = m->end = (uintptr_t)m->slot->data;
    if (!has_elements(m)) return;
    m->low += (uintptr_t)(attn_min(rows, 0) + attn_min(columns, 0));
    m->end += (uintptr_t)(attn_max(rows, 0) + attn_max(columns, 0) + size);
}

/* Type, memory and strides of one matrix, whatever its role. */
static attn_status read_matrix(matrix *m, const char *name, const attn_input *s, int64_t rows, int64_t columns,
                               const attn_product_matrices *p, attn_error *error)
{
    int64_t elements, bytes;
    m->name = name;
    m->slot = s;
    m->rows = rows;
    m->columns = columns;
    m->size = p->dtype == ATTN_F64 ? 8 : 4;
    if ((uintptr_t)s->data <= (uintptr_t)ATTN_MISSING || ((uintptr_t)s->data & (m->size - 1))) TRY(reject_data(m, error));
    CHECK(!s->dtype || s->dtype == p->dtype, ATTN_ERR_UNSUPPORTED, "product: %s is %s; it must be %s", m->name,
          attn_dtype_text(s->dtype), attn_dtype_text(p->dtype));
    m->row = m->columns;
    m->column = m->by_rows = 1;
    if (has_elements(m) && (s->stride[0] | s->stride[1] | s->stride[2] | s->stride[3])) {
        m->column = m->columns > 1 ? meant(s->stride[3]) : 1;
        m->by_rows = m->column == 1;
        m->by_columns = m->rows == 1 || meant(s->stride[2]) == 1;
        m->row = m->rows > 1 ? meant(s->stride[2]) : m->by_rows ? m->columns : 1;
    } else m->by_columns = m->columns == 1 || m->rows <= 1;
    const int64_t line_stride = llabs(m->by_rows ? m->row : m->column), lines = m->by_rows ? m->rows : m->columns;
    CHECK(attn_mul(attn_max(lines, 1), attn_max(line_stride, m->by_rows ? m->columns : m->rows), &elements) &&
              attn_mul(elements, 16, &bytes),
          ATTN_ERR_SHAPE, "product: %s has %" PRId64 " %s %" PRId64 " elements apart: its bytes overflow 64 bits", m->name, lines,
          m->by_rows ? "rows" : "columns", line_stride);
    return ATTN_OK;
}

static attn_status reject_strides(const matrix *m, const char *why, attn_error *error)
{
    return attn_fail(error, ATTN_ERR_STRIDE, "product: %s.stride[2] is %" PRId64 " and stride[3] %" PRId64 "; %s", m->name,
                     m->slot->stride[2], m->slot->stride[3], why);
}

/* C shares no element with A or B. */
static attn_status check_no_overlap(const matrix *c, const matrix *other, attn_error *error)
{
    if (c->low >= other->end || other->low >= c->end || c->low == c->end || other->low == other->end) return ATTN_OK;
    const int64_t shape[2][4] = {{1, 1, c->rows, c->columns}, {1, 1, other->rows, other->columns}};
    const int64_t stride[2][4] = {{0, 0, c->row, c->column}, {0, 0, other->row, other->column}};
    const attn_elements x = {c->slot->data, shape[0], stride[0], c->size}, y = {other->slot->data, shape[1], stride[1], c->size};
    CHECK(attn_elements_meet(&x, &y) == 0, ATTN_ERR_STRIDE,
          "product: c and %s overlap, or their strides make it impossible to tell", other->name);
    return ATTN_OK;
}

attn_status attn_product_lay_out(const attn_product_tensors *t, attn_product_matrices *p, attn_error *error)
{
    CHECK(t, ATTN_ERR_ARGUMENT, "tensors is NULL");
    if (t->struct_size != sizeof *t) TRY(attn_slots_check(t, sizeof *t, sizeof *t, "attn_product_tensors", error));
    CHECK(!t->call, ATTN_ERR_ARGUMENT, "product: call is set; it must be NULL");
    const attn_input written = {t->c.data, t->c.dtype, {t->c.stride[0], t->c.stride[1], t->c.stride[2], t->c.stride[3]}};
    matrix a, b, c;
    TRY(read_matrix(&a, "a", &t->a, p->rows, p->inner, p, error));
    TRY(read_matrix(&b, "b", &t->b, p->inner, p->columns, p, error));
    TRY(read_matrix(&c, "c", &written, p->rows, p->columns, p, error));
    if (!a.by_rows && !a.by_columns) return reject_strides(&a, "one of them must be 1", error);
    if (!b.by_rows && !b.by_columns) return reject_strides(&b, "one of them must be 1", error);
    if (!c.by_rows) return reject_strides(&c, "the last axis must be contiguous (1)", error);
    if (c.rows > 1 && llabs(c.row) < c.columns) return reject_strides(&c, "rows of an output must not overlap", error);
    reach(&a);
    reach(&b);
    reach(&c);
    TRY(check_no_overlap(&c, &a, error));
    TRY(check_no_overlap(&c, &b, error));
    p->a_transposed = !a.by_rows;
    /* A single column is contiguous both ways; few rows are multiplied along it. */
    p->b_transposed = !b.by_rows || (b.columns == 1 && b.by_columns && a.by_rows && p->rows <= ATTN_PRODUCT_DOT_ROWS);
    p->stride_a = p->a_transposed ? a.column : a.row;
    p->stride_b = !p->b_transposed ? b.row : b.by_rows ? b.rows : b.column;
    p->stride_c = c.row;
    p->a = t->a.data;
    p->b = t->b.data;
    p->c = t->c.data;
    return ATTN_OK;
}

attn_status attn_product_check_workspace(const attn_product_matrices *m, attn_bytes workspace, attn_error *error)
{
    const struct {
        const char *name;
        const void *base;
        int64_t lines, length, stride;
    } matrices[] = {
        {"a", m->a, m->a_transposed ? m->inner : m->rows, m->a_transposed ? m->rows : m->inner, m->stride_a},
        {"b", m->b, m->b_transposed ? m->columns : m->inner, m->b_transposed ? m->inner : m->columns, m->stride_b},
        {"c", m->c, m->rows, m->columns, m->stride_c},
    };
    for (int i = 0; i < 3; i++) {
        const int64_t shape[4] = {1, 1, matrices[i].lines, matrices[i].length}, stride[4] = {0, 0, matrices[i].stride, 1};
        const attn_elements elements = {matrices[i].base, shape, stride, m->dtype == ATTN_F64 ? 8 : 4};
        CHECK(attn_elements_meet_bytes(&elements, workspace) == 0, ATTN_ERR_ARGUMENT,
              "product: %s and the workspace overlap, or its strides make it impossible to tell", matrices[i].name);
    }
    return ATTN_OK;
}
