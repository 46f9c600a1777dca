/* SPDX-License-Identifier: MIT
 * product.c - every rule that a product of matrices must keep.  Each has a row with its exact message in
 * tests/unit/test_product_refused.c. */
#include "product.h"

#include <inttypes.h>

#include "../base/checked.h"
#include "../base/error.h"
#include "../base/names.h"
#include "tensors.h"

typedef struct matrix {
    const char *name;
    int64_t rows, columns; /* in memory */
    int64_t *stride;
} matrix;

/* A, B and C as they lie in memory. */
static void matrices(attn_product_problem *p, matrix *m)
{
    m[0] = (matrix){"a", p->a_turned ? p->inner : p->rows, p->a_turned ? p->rows : p->inner, &p->stride_a};
    m[1] = (matrix){"b", p->b_turned ? p->columns : p->inner, p->b_turned ? p->inner : p->columns, &p->stride_b};
    m[2] = (matrix){"c", p->rows, p->columns, &p->stride_c};
}

attn_status attn_product_resolve(attn_product_problem *p, attn_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = {{"rows", p->rows}, {"columns", p->columns}, {"inner", p->inner}};
    const struct {
        const char *name;
        int value;
    } flags[] = {{"add", p->add}, {"a_turned", p->a_turned}, {"b_turned", p->b_turned}};
    matrix m[3];
    if (!p->dtype) p->dtype = ATTN_F32;
    CHECK(p->dtype == ATTN_F32 || p->dtype == ATTN_F64, ATTN_ERR_UNSUPPORTED, "product: dtype is %s; it must be f32 or f64",
          attn_dtype_text(p->dtype));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        CHECK(sizes[i].value >= 0, ATTN_ERR_SHAPE, "product: %s (%" PRId64 ") is negative", sizes[i].name, sizes[i].value);
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        CHECK(flags[i].value == 0 || flags[i].value == 1, ATTN_ERR_ARGUMENT, "product: %s is %d; it is 0 or 1", flags[i].name,
              flags[i].value);
    for (int i = 0; i < 4; i++)
        CHECK(p->reserved[i] == 0, ATTN_ERR_ARGUMENT, "product: reserved[%d] is %" PRId64 "; it must be 0", i, p->reserved[i]);
    matrices(p, m);
    for (int i = 0; i < 3; i++) {
        int64_t elements, bytes;
        if (*m[i].stride == 0) *m[i].stride = m[i].columns;
        CHECK(*m[i].stride >= m[i].columns, ATTN_ERR_STRIDE,
              "product: stride_%s is %" PRId64 ", and a row has %" PRId64 " elements", m[i].name, *m[i].stride, m[i].columns);
        CHECK(attn_mul(m[i].rows, *m[i].stride, &elements) && attn_mul(elements, 16, &bytes), ATTN_ERR_SHAPE,
              "product: %s has %" PRId64 " rows %" PRId64 " elements apart, which are too many", m[i].name, m[i].rows,
              *m[i].stride);
    }
    return ATTN_OK;
}

/* C shares no element with A or B. */
static attn_status check_apart(const matrix *m, const void *c, const matrix *other, const void *base, size_t size,
                               attn_error *error)
{
    const int64_t shape[2][4] = {{1, 1, m->rows, m->columns}, {1, 1, other->rows, other->columns}};
    const int64_t stride[2][4] = {{0, 0, *m->stride, 1}, {0, 0, *other->stride, 1}};
    const attn_elements x = {c, shape[0], stride[0], size}, y = {base, shape[1], stride[1], size};
    const uintptr_t from = (uintptr_t)c, to = (uintptr_t)base;
    const uint64_t bytes_c = (uint64_t)(m->rows * *m->stride) * size, bytes_other = (uint64_t)(other->rows * *other->stride) * size;
    if (from >= to + bytes_other || to >= from + bytes_c) return ATTN_OK;
    CHECK(attn_elements_meet(&x, &y) == 0, ATTN_ERR_STRIDE, "product: c and %s share elements, or strides too intricate to tell",
          other->name);
    return ATTN_OK;
}

attn_status attn_product_pointers(const attn_product_problem *p, const void *a, const void *b, const void *c, attn_error *error)
{
    const void *const pointers[] = {a, b, c};
    const size_t size = attn_dtype_bytes(p->dtype);
    attn_product_problem copy = *p;
    matrix m[3];
    matrices(&copy, m);
    for (int i = 0; i < 3; i++) {
        CHECK(pointers[i] || m[i].rows == 0 || m[i].columns == 0, ATTN_ERR_ARGUMENT, "product: %s is NULL", m[i].name);
        CHECK(((uintptr_t)pointers[i] & (size - 1)) == 0, ATTN_ERR_ARGUMENT,
              "product: %s is not aligned to its elements of %zu bytes", m[i].name, size);
    }
    for (int i = 0; i < 2; i++) TRY(check_apart(&m[2], c, &m[i], pointers[i], size, error));
    return ATTN_OK;
}
